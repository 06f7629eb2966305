"""Fresh interpreters that import torch before there is a script for them.

A repro or a script runs in its own interpreter, which spends most of its time on imports. An
interpreter therefore starts early, in its own empty folder, and learns later what to run.
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
import gc, importlib, json, os, runpy, sys, time
gc.disable()  # imports make a million objects that stay
for name in sys.argv[2:]:
    importlib.import_module(name)
gc.freeze()
gc.enable()
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
"""The program of an interpreter: import, wait for orders, and run a script or a module."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that waits for orders in an empty folder."""

    place: tempfile.TemporaryDirectory[str]
    child: Child
    environment: Mapping[str, str]

    @classmethod
    def started(cls, environment: Mapping[str, str], imports: Sequence[str]) -> Interpreter:
        """Start an interpreter. Raises OSError."""
        place = tempfile.TemporaryDirectory(prefix="tcdebug-repro-")
        folder, orders = Path(place.name, "repro"), Path(place.name, "orders")
        folder.mkdir()
        command = [sys.executable, "-c", PROGRAM, str(orders), *imports]
        output = Path(place.name, "output")
        child = spawn(command, environment, folder=folder, output=output, limits=Limits(0.0, None))
        return cls(place, child, environment)

    @property
    def folder(self) -> Path:
        """The folder for a script that has none of its own."""
        return Path(self.place.name, "repro")

    def begin(
        self,
        arguments: Sequence[str],
        limits: Limits | None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        output: Path | None = None,
    ) -> Child:
        """Run what `python` would run with these arguments. The time limit starts now.

        An environment, folder or output file that is not given stays that of the interpreter.
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
        self.child.restart_time(limits)
        fresh.replace(path)
        return self.child

    def run(self, arguments: Sequence[str], seconds: float) -> Ended:
        """Run a script in its folder to the end."""
        return finished(self.begin(arguments, Limits(seconds, None)))

    @property
    def output(self) -> str:
        """Return its output, unless the output went to another file."""
        return Path(self.place.name, "output").read_text(errors="replace")

    def end(self) -> None:
        """End the interpreter, and remove its folder."""
        self.child.end()
        self.place.cleanup()


@dataclass
class Interpreters:
    """Waiting interpreters, `ready` of them, for this environment.

    If `refilled`, a new one starts whenever one is taken.
    """

    environment: Mapping[str, str]
    imports: Sequence[str]
    ready: int
    refilled: bool = False
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
                if self.refilled:
                    self.start()
                return interpreter
        return None

    def end(self) -> None:
        """End all interpreters, waiting or taken."""
        for interpreter in (*self._waiting, *self._taken):
            interpreter.end()
        self._waiting.clear()
        self._taken.clear()
