"""Runs a repro script where nothing but it is: only what was seen to fail is announced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 300.0
"""How long a repro script gives its graph before it calls it a hang."""

FAILS, PASSES, UNRESOLVED = 1, 0, 125
"""Exit statuses of a repro script."""

IN_SCRIPT = "repro_in_script.py"
"""Beside a repro.py: the same, with the script run up to the graph first."""


@dataclass(frozen=True)
class Verified:
    """How a repro script ended in a fresh process in a clean folder."""

    status: int
    seconds: float
    output: str

    @property
    def reproduced(self) -> bool:
        """Whether it failed as expected."""
        return self.status == FAILS


def settle(path: Path) -> bool:
    """Leave the repro that fails: the bare one, or else the one in the script. Whether one does."""
    other = path.with_name(IN_SCRIPT)
    result = verify(path)
    if not result.reproduced and other.exists():
        in_script = verify(other)
        if in_script.reproduced:
            other.replace(path)
            result = in_script
    path.with_name("repro.log").write_text(result.output)
    other.unlink(missing_ok=True)
    return result.reproduced


def verify(path: Path, off: Sequence[str] = ()) -> Verified:
    """Run a repro script where nothing but it and its data is."""
    start = time.monotonic()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
        environment.pop(name, None)
    if cache := os.environ.get("TCDEBUG_CACHE_DIR"):
        environment["TCDEBUG_CACHE_DIR"] = cache
    environment["TCDEBUG_LOG"] = "0"
    with tempfile.TemporaryDirectory(prefix="tcdebug-repro-") as folder:
        for file in path.parent.iterdir():
            if file.is_file() and file.name.startswith(path.stem):
                shutil.copy(file, folder)
        command = [sys.executable, path.name, *(f"--off={u}" for u in off)]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True,
                timeout=SECONDS * 1.5, check=False,
            )  # fmt: skip
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            status, output = UNRESOLVED, "the repro script did not end"
    return Verified(status, time.monotonic() - start, output)


