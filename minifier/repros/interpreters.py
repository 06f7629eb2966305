"""Fresh interpreters that import torch before there is a script to run.

A repro script runs in its own interpreter, which spends most of its time on imports. An interpreter
therefore starts early, in its own empty folder, and learns later which script to run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.minifier.processes.process import Child, Ended, Limits, finished
from tcdebug.minifier.processes.spawn import spawn

IMPORTS = ("torch", "torch._dynamo", "torch._inductor.compile_fx")
PROGRAM = """
import importlib, json, os, runpy, sys, time
for name in sys.argv[2:]:
    importlib.import_module(name)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
with open(sys.argv[1]) as file:
    sys.argv[:] = json.load(file)
sys.path[0] = os.getcwd()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The program of an interpreter: import, wait for the file of arguments, and run the script."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that waits for a script in its empty folder."""

    place: tempfile.TemporaryDirectory[str]
    child: Child

    @classmethod
    def started(cls, environment: Mapping[str, str]) -> Interpreter:
        """Start an interpreter. Raises OSError."""
        place = tempfile.TemporaryDirectory(prefix="tcdebug-repro-")
        folder, arguments, printed = (Path(place.name, n) for n in ("repro", "arguments", "output"))
        folder.mkdir()
        command = [sys.executable, "-c", PROGRAM, str(arguments), *IMPORTS]
        child = spawn(command, environment, folder=folder, output=printed, limits=Limits(0.0, None))
        return cls(place, child)

    @property
    def folder(self) -> Path:
        """The folder into which the script and its data must be put."""
        return Path(self.place.name, "repro")

    def run(self, arguments: Sequence[str], seconds: float) -> tuple[Ended, float]:
        """Run a script as `python` does. Return how it ended, and after how many seconds."""
        began = time.monotonic()
        self.child.left = seconds
        path = Path(self.place.name, "arguments")
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(list(arguments)))
        fresh.replace(path)
        return finished(self.child), time.monotonic() - began

    @property
    def output(self) -> str:
        """The output so far."""
        return Path(self.place.name, "output").read_text(errors="replace")

    def end(self) -> None:
        """End the interpreter, and remove its folder."""
        self.child.end()
        self.place.cleanup()


@dataclass
class Interpreters:
    """Waiting interpreters, at most `ready` of them, with the same environment."""

    environment: Mapping[str, str]
    ready: int
    _waiting: list[Interpreter] = field(default_factory=list)

    def start(self) -> None:
        """Start interpreters until `ready` are waiting."""
        while len(self._waiting) < self.ready:
            self._waiting.append(Interpreter.started(self.environment))

    def take(self) -> Interpreter | None:
        """Return the one that has waited longest, for the caller to end; None if none waits."""
        return self._waiting.pop(0) if self._waiting else None

    def end(self) -> None:
        """End the waiting interpreters."""
        while waiting := self.take():
            waiting.end()
