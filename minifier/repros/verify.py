"""Runs a repro script where nothing but it is: only what was seen to fail is announced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tcdebug.minifier.cases.environment import without_settings
from tcdebug.minifier.processes.job import own_caches

SECONDS = 300.0
"""How long a repro script gives its graph before it calls it a hang."""

FAILS, PASSES, UNRESOLVED = 1, 0, 125
"""Exit statuses of a repro script."""

BOTH = re.compile(r"^as it is and with units off: (\d+) (\d+)$", re.MULTILINE)
"""What a script says last that was asked for both."""

AS_CALLED = "repro_as_called.py"
"""Beside a repro.py: the same, with the values that the graph was called with."""
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
    """Leave one repro, the simplest that fails as expected, or else the bare one.

    Returns whether one fails.
    """
    others = [path.with_name(name) for name in (AS_CALLED, IN_SCRIPT)]
    output, reproduced = "", False
    for candidate in (path, *others):
        if candidate.exists() and not reproduced:
            result = verify(candidate)
            output, reproduced = output or result.output, result.reproduced
            if reproduced:
                output = result.output
                for file in _with_data(candidate):
                    file.replace(path.with_suffix(file.suffix))
    path.with_name("repro.log").write_text(output)
    for other in others:
        for file in _with_data(other):
            file.unlink()
    return reproduced


def _with_data(path: Path) -> list[Path]:
    """A repro script and its stored data, as far as they exist."""
    return [p for p in (path, path.with_suffix(".safetensors")) if p.exists()]


def verify(path: Path, off: Sequence[str] = ()) -> Verified:
    """Run a repro script where nothing but it and its data is."""
    return _run(path, [f"--off={unit}" for unit in off])


def verify_both(path: Path, off: Sequence[str]) -> tuple[Verified, Verified]:
    """Run a repro script as it is and with units off, in children of one fresh process.

    In a process each, where that one does not get to its end.
    """
    result = _run(path, ["--both", *(f"--off={unit}" for unit in off)])
    found = BOTH.search(result.output)
    if found is None:
        return verify(path), verify(path, off)
    return replace(result, status=int(found[1])), replace(result, status=int(found[2]))


def _run(path: Path, arguments: Sequence[str]) -> Verified:
    start = time.monotonic()
    environment = {k: v for k, v in without_settings().items() if not k.startswith("TCDEBUG_")}
    environment.pop("PYTHONPATH", None)
    if cache := os.environ.get("TCDEBUG_CACHE_DIR"):
        environment["TCDEBUG_CACHE_DIR"] = cache
    environment |= {**own_caches(), "TCDEBUG_LOG": "0"}
    text = path.read_text()
    with tempfile.TemporaryDirectory(prefix="tcdebug-repro-") as folder:
        for file in path.parent.iterdir():
            if file.is_file() and (file.name.startswith(path.stem) or file.name in text):
                shutil.copy(file, folder)
        command = [sys.executable, path.name, *arguments]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True,
                timeout=SECONDS * 2.5, check=False,
            )  # fmt: skip
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            status, output = UNRESOLVED, "the repro script did not end"
    return Verified(status, time.monotonic() - start, output)


