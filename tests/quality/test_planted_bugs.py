"""`tcdebug bisect` names the unit that holds a planted bug, and leaves a graph of 5 nodes or fewer.

One row a unit and a way to fail; what breaks is in tests/planted.py, the model in
tests/scripts/planted_model.py. Every row is run by `pytest -m slow tests/quality`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "planted_model.py"
LEFT = 5
"""The most nodes that may be left."""
CONFIRMED_FAILURE = {
    "exception": "exception",
    "wrong": "wrong",
    "segfault": "crash",
    "hang": "hang",
}
FAST = {
    ("passes.algebraic", "wrong"),
    ("lower.aten.tanh.default", "segfault"),
}
UNITS = (
    "passes.algebraic",
    "decompose.aten.tanh_backward.default",
    "lower.aten.tanh.default",
    "fuse.inline",
    "fuse.reduction",
    "codegen.vectorize",
    "memory.reuse",
)
ROWS = [
    pytest.param(unit, kind, marks=() if (unit, kind) in FAST else pytest.mark.slow)
    for unit in UNITS
    for kind in CONFIRMED_FAILURE
]


def bisected(folder: Path, unit: str, kind: str, blocks: int, script: Path = SCRIPT) -> Any:
    """The report on a model of so many blocks, of about 9 nodes each."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    done = subprocess.run(
        [
            sys.executable, "-m", "tcdebug", "bisect", "--json", "--quiet", "--timeout", "25",
            str(script), unit, kind, str(blocks),
        ],
        cwd=folder,
        # one thread: several of these run side by side, and threads that wait spin
        env={**plain, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def check(report: Any, unit: str, kind: str) -> None:
    assert report["failure"]["kind"] == CONFIRMED_FAILURE[kind]
    assert [c["unit"] for c in report["culprits"]] == [unit]
    assert report["confirmed"] is True
    assert report["nodes_after"] <= LEFT
    assert Path(report["repro"]).exists()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("unit", "kind"), ROWS)
def test_a_bug_in_a_small_model_is_found(tmp_path: Path, unit: str, kind: str) -> None:
    report = bisected(tmp_path, unit, kind, blocks=3)
    assert report["nodes_before"] >= 20
    check(report, unit, kind)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("unit", UNITS)
def test_a_bug_in_a_model_of_hundreds_of_nodes_is_found(tmp_path: Path, unit: str) -> None:
    report = bisected(tmp_path, unit, "exception", blocks=40)
    assert report["nodes_before"] >= 350
    check(report, unit, "exception")
