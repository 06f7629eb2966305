"""Runs scripts that need Triton's interpreter, each in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def rows_of(script: str, cache_dir: Path) -> list[list[str]]:
    """The output of a script in this folder, as rows of cells, one row per program.

    It runs in a separate process, because the interpreter must be chosen before triton is imported.
    """
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script)],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "TCDEBUG_CACHE_DIR": str(cache_dir)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split("\t") for line in done.stdout.splitlines()]
