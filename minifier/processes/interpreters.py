"""Fresh interpreters that import torch before there is a script for them.

A repro or a script runs in an interpreter of its own, which spends most of its time on imports. So
an interpreter starts early, in an empty folder of its own, and is told later what to run.
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

PROGRAM = """
import importlib, json, os, runpy, sys, time
for name in sys.argv[2:]:
    importlib.import_module(name)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
with open(sys.argv[1]) as file:
    orders = json.load(file)
os.environ.clear()
os.environ.update(orders["environment"])
os.chdir(orders["folder"])
output = os.open(orders["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
for standard in (1, 2):
    os.dup2(output, standard)
sys.path[0] = os.getcwd()
name, *arguments = orders["arguments"]
if name == "-m":
    sys.argv[:] = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
else:
    sys.argv[:] = orders["arguments"]
    runpy.run_path(name, run_name="__main__")
"""
"""What an interpreter does: it imports, waits for its orders, and runs a script or a module."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that waits for orders. Its folder is empty."""

    place: tempfile.TemporaryDirectory[str]
    child: Child
    environment: Mapping[str, str]

    @classmethod
    def started(cls, environment: Mapping[str, str], imports: Sequence[str]) -> Interpreter:
        """Start one. Raises OSError."""
        place = tempfile.TemporaryDirectory(prefix="tcdebug-repro-")
        folder, orders = Path(place.name, "repro"), Path(place.name, "orders")
        folder.mkdir()
        command = [sys.executable, "-c", PROGRAM, str(orders), *imports]
        output = Path(place.name, "output")
        child = spawn(command, environment, folder=folder, output=output, limits=Limits(0.0, None))
        return cls(place, child, environment)

    @property
    def folder(self) -> Path:
        """The folder for a script that has none."""
        return Path(self.place.name, "repro")

    def begin(
        self,
        arguments: Sequence[str],
        limits: Limits | None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        output: Path | None = None,
    ) -> Child:
        """Let it run what `python` would run with these arguments. Its time begins now.

        It gets the environment, the folder and the file for its output, or keeps its own.
        """
        orders = {
            "arguments": list(arguments),
            "environment": dict(environment or self.environment),
            "folder": str(folder or self.folder),
            "output": str(output or Path(self.place.name, "output")),
        }
        path = Path(self.place.name, "orders")
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(orders))
        self.child.begin_anew(limits)
        fresh.replace(path)
        return self.child

    def run(self, arguments: Sequence[str], seconds: float) -> Ended:
        """Run a script of its folder to the end."""
        return finished(self.begin(arguments, Limits(seconds, None)))

    @property
    def output(self) -> str:
        """Return what it printed, unless it was told to print elsewhere."""
        return Path(self.place.name, "output").read_text(errors="replace")

    def end(self) -> None:
        """End it, and remove its folder."""
        self.child.end()
        self.place.cleanup()


@dataclass
class Interpreters:
    """Interpreters that wait, `ready` of them, for what runs in this environment.

    If `refilled`, another one starts whenever one is taken.
    """

    environment: Mapping[str, str]
    imports: Sequence[str]
    ready: int
    refilled: bool = False
    _waiting: list[Interpreter] = field(default_factory=list)
    _taken: list[Interpreter] = field(default_factory=list)

    def start(self) -> None:
        """Start as many as are missing."""
        while len(self._waiting) < self.ready:
            self._waiting.append(Interpreter.started(self.environment, self.imports))

    def take(self) -> Interpreter | None:
        """Return the one that has waited longest, or None if none waits."""
        while self._waiting:
            interpreter = self._waiting.pop(0)
            self._taken.append(interpreter)
            if not has_exited(interpreter.child.pid):  # its imports failed
                if self.refilled:
                    self.start()
                return interpreter
        return None

    def end(self) -> None:
        """End all of them."""
        for interpreter in (*self._waiting, *self._taken):
            interpreter.end()
        self._waiting.clear()
        self._taken.clear()
