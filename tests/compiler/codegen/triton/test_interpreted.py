"""Kernels in Triton compute what eager does: run by Triton's interpreter, which needs no GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "support" / "interpret_programs.py"
PROGRAMS = 32


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_programs_compute_what_eager_does(tmp_path: Path) -> None:
    """In one process: the interpreter has to be chosen before triton is imported."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "TCDEBUG_CACHE_DIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == PROGRAMS
    assert [line for line in lines if line[2]] == []
    assert [name for name, graphs, _ in lines if graphs != "1"] == []  # each was written
