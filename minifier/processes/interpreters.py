"""Fresh interpreters that import torch before there is a script for them.

A repro runs in its own interpreter, which spends most of its time on imports. An interpreter
therefore starts early, in its own empty folder, and learns later what to run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.minifier.processes.process import Child, Ended, Limits, finished, has_exited
from tcdebug.minifier.processes.spawn import spawn

ARGUMENTS = "arguments"
"""The file that tells an interpreter what to run."""
PROGRAM = """
import gc, importlib, json, os, runpy, sys, time
environment = dict(os.environ)
gc.disable()  # imports make a million objects that stay
for name in sys.argv[2:]:
    importlib.import_module(name)
gc.freeze()
gc.enable()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
with open(sys.argv[1]) as file:
    sys.argv[:] = json.load(file)
os.environ.clear()  # of what imports have set
os.environ.update(environment)
sys.path[0] = os.getcwd()
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The program of an interpreter: import, wait for arguments, and run a script."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that waits for arguments in an empty folder."""

    place: tempfile.TemporaryDirectory[str]
    child: Child

    @classmethod
    def started(cls, environment: Mapping[str, str], imports: Sequence[str]) -> Interpreter:
        """Start an interpreter. Raises OSError."""
        place = tempfile.TemporaryDirectory(prefix="tcdebug-repro-")
        folder, path = Path(place.name, "repro"), Path(place.name, ARGUMENTS)
        folder.mkdir()
        command = [sys.executable, "-c", PROGRAM, str(path), *imports]
        output = Path(place.name, "output")
        child = spawn(command, environment, folder=folder, output=output, limits=Limits(0.0, None))
        return cls(place, child)

    @property
    def folder(self) -> Path:
        """The folder in which the script runs."""
        return Path(self.place.name, "repro")

    def run(self, arguments: Sequence[str], seconds: float) -> Ended:
        """Run a script in the folder to the end, with its arguments. The time limit starts now."""
        path = Path(self.place.name, ARGUMENTS)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(list(arguments)))
        self.child.restart_time(Limits(seconds, None))
        fresh.replace(path)
        return finished(self.child)

    @property
    def output(self) -> str:
        """Return its output."""
        return Path(self.place.name, "output").read_text(errors="replace")

    def end(self) -> None:
        """End the interpreter, and remove its folder."""
        self.child.end()
        self.place.cleanup()


@dataclass
class Interpreters:
    """Waiting interpreters, `ready` of them, for this environment."""

    environment: Mapping[str, str]
    imports: Sequence[str]
    ready: int
    _waiting: list[Interpreter] = field(default_factory=list)
    _taken: list[Interpreter] = field(default_factory=list)

    def start(self) -> None:
        """Start interpreters until `ready` are waiting."""
        while len(self._waiting) < self.ready:
            self._waiting.append(Interpreter.started(self.environment, self.imports))

    def take(self) -> Interpreter | None:
        """Return the one that has waited longest, or None if none waits."""
        while self._waiting:
            interpreter = self._waiting.pop(0)
            self._taken.append(interpreter)
            if not has_exited(interpreter.child.pid):  # otherwise its imports failed
                return interpreter
        return None

    def end(self) -> None:
        """End all interpreters, waiting or taken."""
        for interpreter in (*self._waiting, *self._taken):
            interpreter.end()
        self._waiting.clear()
        self._taken.clear()
