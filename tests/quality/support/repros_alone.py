"""Repro scripts run by themselves: in an empty folder, in fresh processes, again and again."""

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
    """The exit statuses of a repro script as it is, and with its culprit switched off."""

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
    """Run the repro of a fault of a report, by the commands that the report gives."""
    path = Path(fault["repro"])
    fails = [_status(path, fault["fails"]) for _ in range(times)]
    has_culprit = bool(fault["culprits"])
    passes = [_status(path, fault["passes"]) for _ in range(times if has_culprit else 0)]
    return Alone(tuple(fails), tuple(passes))


def _status(path: Path, command: str) -> int:
    """The exit status of the command in an empty folder, with the script and its data copied."""
    with tempfile.TemporaryDirectory() as folder:
        for file in (path, path.with_suffix(".safetensors")):
            if file.exists():
                shutil.copy(file, folder)
        python, *arguments = command.split()
        assert python == "python"
        return _run([sys.executable, *arguments], Path(folder))


def _run(command: Sequence[str], folder: Path) -> int:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")}
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TCDEBUG_CACHE_DIR": str(folder / "tcdebug"),
    }
    done = subprocess.run(
        command, cwd=folder, env={**plain, **caches}, capture_output=True, check=False
    )
    return done.returncode
