"""Scripts that run kernels in Triton's interpreter, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def rows_of(script: str, cache_dir: Path) -> list[list[str]]:
    """What a script beside this one prints, as cells: a row for each program.

    In one process: the interpreter has to be chosen before triton is imported.
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
