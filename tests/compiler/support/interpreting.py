"""Runs scripts that need Triton's interpreter, in forks of one process.

TRITON_INTERPRET=1 python interpreting.py SCRIPT... prints the name and the lines of each.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

Rows = list[list[str]]


def rows_of(scripts: tuple[str, ...], cache_dir: Path) -> dict[str, Rows]:
    """The output of modules in this folder, as rows of cells, one row per program.

    They run in a separate process, because the interpreter must be chosen before triton is
    imported.
    """
    done = subprocess.run(
        [sys.executable, __file__, *scripts],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "TCDEBUG_CACHE_DIR": str(cache_dir)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows: dict[str, Rows] = {}
    for line in done.stdout.splitlines():
        if line in scripts:
            rows[line] = []
        else:
            rows[next(reversed(rows))].append(line.split("\t"))
    return rows


def main() -> None:
    """Import all scripts, and run each in a fork, since it changes units of the compiler."""
    scripts, sys.argv[1:] = sys.argv[1:], []
    gc.set_threshold(100_000, 50, 50)  # compiles make a million objects, as in conftest.py
    modules = [import_module(name) for name in scripts]
    gc.freeze()
    for name, module in zip(scripts, modules, strict=True):
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            module.main()
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} failed")


if __name__ == "__main__":
    main()
