"""`tcdebug fuzz run` finds each planted bug within 2,000 programs, and shrinks the program.

tests/planted.py defines the bugs, and tests/scripts/planted_for_fuzzing.py plants them.
tests/benchmarks/fuzz_planted.py counts the programs over several seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "scripts" / "planted_for_fuzzing.py"
UNITS = (
    "passes.algebraic",
    "lower.aten.tanh.default",
    "fuse.inline",
    "fuse.reduction",
    "codegen.vectorize",
)
MOST_STEPS = 3
"""Maximum number of lines left of a program, before the minifier runs."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("unit", UNITS)
def test_a_planted_bug_is_found_and_shrunk(tmp_path: Path, unit: str) -> None:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    done = subprocess.run(
        [
            sys.executable, "-m", "tcdebug", "fuzz", "run", f"--setup={SETUP}", "--examples=2000",
            "--seed=0", "--no-bisect", "--stop-after=1", "-q", "-j1", "--findings=findings",
        ],
        cwd=tmp_path,
        env={**plain, "PLANTED": f"{unit} exception"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    (path,) = (tmp_path / "findings").glob("*/finding.json")
    found = json.loads(path.read_text())
    assert "a planted bug" in found["message"]
    assert len(found["program"]["steps"]) <= MOST_STEPS
