"""`tcdebug bisect` names the gated pass at fault in three kinds of compilers.

The scripts stand for a piecewise backend, a list of passes on a joint graph, and a vendor's
backend. Each plants a fault in one pass, for graphs that contain tanh.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from planted_bisect import CONFIRMED_FAILURE, check, report_of
from repros_alone import alone

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENTRIES = {
    "piecewise_backend.py": "user.fused_norm",
    "joint_passes.py": "user.fast_tanh",
    "vendor_backend.py": "user.vendor.tanh",
}


def report(folder: Path, script: str, *arguments: str) -> Any:
    return report_of(folder, ["--timeout", "25", str(SCRIPTS / script), *arguments])


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("script", "kind"), [*itertools.product(ENTRIES, CONFIRMED_FAILURE)])
def test_the_pass_at_fault_is_named(tmp_path: Path, script: str, kind: str) -> None:
    done = report(tmp_path, script, kind, "compile")
    check(done, ENTRIES[script], kind)
    (fault,) = done["faults"]
    if kind == "wrong":
        assert fault["stages"]["stage"].partition(" ")[0] == ENTRIES[script]
    assert alone(fault, times=1).reproduces


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", CONFIRMED_FAILURE)
def test_a_script_that_calls_its_own_pipeline_has_its_passes_bisected(
    tmp_path: Path, kind: str
) -> None:
    done = report(tmp_path, "joint_passes.py", kind, "direct")
    assert [c["unit"] for c in done["culprits"]] == ["user.fast_tanh"]
    assert done["confirmed"] is True
    assert done["faults"][0]["fails"] and done["faults"][0]["passes"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
def test_no_other_pass_is_blamed_for_a_fault_in_a_required_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        (SCRIPTS / "vendor_backend.py")
        .read_text()
        .replace('gated("vendor.tanh")', 'gated("vendor.tanh", required=True)')
        .replace('gated("vendor.to_device")', 'gated("vendor.to_device", required=True)')
        .replace("parents[1]", f"parents[0] / {str(SCRIPTS.parent)!r}")
    )
    done = report_of(tmp_path, [str(script), "wrong"])
    assert done["confirmed"] is True
    assert [c["unit"] for c in done["culprits"]] == ["layer.backend"]
