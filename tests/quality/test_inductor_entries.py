"""`tcdebug bisect` finds a wrong lowering in graphs that a script gives directly to inductor."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_bisect import CONFIRMED_FAILURE, check, report_of
from repros_alone import alone

SCRIPT = Path(__file__).parents[1] / "scripts" / "inductor_entry.py"
CALLS = {
    "compile_fx": "'backend': 'compile_fx'",
    "inductor_compile": "'backend': 'inductor_compile'",
    "standalone_compile": "'backend': 'standalone_compile'",
    "compile_fx_again": "'backend': None",
    "aot_compile": "'backend': 'aotinductor'",
    "aoti_package": "'backend': 'aotinductor'",
}
"""What the script calls -> what its repro calls."""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", CONFIRMED_FAILURE)
@pytest.mark.parametrize("entry", CALLS)
def test_a_graph_given_to_inductor_is_bisected(tmp_path: Path, entry: str, kind: str) -> None:
    done = report_of(tmp_path, ["--timeout", "25", str(SCRIPT), entry, kind])
    check(done, "lower.aten.tanh.default", kind)
    (fault,) = done["faults"]
    assert CALLS[entry] in Path(fault["repro"]).read_text()
    assert alone(fault, times=1).reproduces
