"""Runs repro scripts alone: in an empty folder, in fresh processes, several times."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAILS, PASSES = 1, 0
"""Exit statuses of a repro script."""
TIMES = 3


@dataclass(frozen=True)
class Alone:
    """The exit statuses of a repro script, unchanged and with its culprit switched off."""

    as_it_is: tuple[int, ...]
    without: tuple[int, ...]

    @property
    def reproduces(self) -> bool:
        """Whether it failed each time, and passed each time without the culprit."""
        return {*self.as_it_is} == {FAILS} and {*self.without} <= {PASSES}

    def text(self) -> str:
        """3/3 fail, 3/3 pass."""
        fail, passed = self.as_it_is.count(FAILS), self.without.count(PASSES)
        runs = len(self.as_it_is)
        without = f", {passed}/{len(self.without)} pass" if self.without else ""
        return f"{fail}/{runs} fail{without}"


def alone(fault: Mapping[str, Any], times: int = TIMES) -> Alone:
    """Run the repro of a reported fault, with the commands of the report."""
    path = Path(fault["repro"])
    fails = statuses(path, fault["fails"], times)
    return Alone(fails, statuses(path, fault["passes"], times if fault["culprits"] else 0))


def statuses(path: Path, command: str, times: int = TIMES) -> tuple[int, ...]:
    """The exit statuses of a repro's command, each in a folder with only the script and its data.

    The first run finds no kernel cached; the others find its kernels.
    """
    python, *arguments = command.split()
    assert python == "python"
    with tempfile.TemporaryDirectory() as caches:
        return tuple(_status(path, arguments, caches) for _ in range(times))


def _status(path: Path, arguments: Sequence[str], caches: str) -> int:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    env = {**plain, "TORCHINDUCTOR_CACHE_DIR": caches, "TCDEBUG_CACHE_DIR": caches}
    with tempfile.TemporaryDirectory() as folder:
        for file in (path, path.with_suffix(".safetensors")):
            if file.exists():
                shutil.copy(file, folder)
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, check=False
        )
    return done.returncode
