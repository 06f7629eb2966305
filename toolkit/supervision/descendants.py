"""Finds processes that a script starts, that use torch, and that tcdebug could not watch."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tcdebug.minifier.processes.interpreters import PROGRAM

PAUSE = 0.5
"""Seconds between looks. A process that imports torch lives longer."""


@dataclass
class Descendants:
    """The processes seen below a process while it ran."""

    pid: int
    commands: dict[int, str] = field(default_factory=dict)
    """By process id, the command lines of processes that loaded torch and were not forked.

    Interpreters for repros are not among them, because they run no part of a script.
    """
    _looked: float = 0.0

    def look(self) -> None:
        """Record the current processes, if it is time to look again."""
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
            return  # the process has ended, or belongs to another user
        if "libtorch_python" in maps and not forked and PROGRAM not in command:
            self.commands[process.pid] = " ".join(shlex.join(command).split())[:120]
