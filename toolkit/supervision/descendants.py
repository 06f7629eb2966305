"""The processes that a script starts and that use torch: those that tcdebug could not watch."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PAUSE = 0.5
"""Seconds between looks: who has imported torch was there for longer."""


@dataclass
class Descendants:
    """What was seen below a process while it ran."""

    pid: int
    commands: dict[int, str] = field(default_factory=dict)
    """The command lines of those that loaded torch and were not forked, by process."""
    _looked: float = 0.0

    def look(self) -> None:
        """See who is there now, if it is time to."""
        if time.monotonic() - self._looked < PAUSE:
            return
        try:
            found = psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            found = []
        for process in found:
            if process.pid not in self.commands:
                self._look_at(process)
        self._looked = time.monotonic()

    def _look_at(self, process: psutil.Process) -> None:
        try:
            command = process.cmdline()
            parent = process.parent()
            forked = parent is not None and parent.cmdline() == command
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
        except (psutil.Error, OSError):
            return  # it is gone, or not ours to see
        if "libtorch_python" in maps and not forked:
            self.commands[process.pid] = shlex.join(command)[:120]
