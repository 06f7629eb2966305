"""Fresh interpreters that import torch before there is a script for them.

A repro runs in its own interpreter, which spends most of its time on imports. An interpreter
therefore starts early, and learns later what to run. It runs each script in a fork, in an empty
folder, so that the imports serve all forms of a repro.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.minifier.processes.process import OVERRUN, Child, Ended, Limits, has_exited, wait
from tcdebug.minifier.processes.spawn import spawn

POLL = 0.02
PROGRAM = """
import gc, importlib, json, os, sys, time, types
environment = dict(os.environ)
gc.disable()  # imports make a million objects that stay
for name in sys.argv[2:]:
    module, _, function = name.partition(":")
    imported = importlib.import_module(module)
    if function:
        getattr(imported, function)()
gc.freeze()
gc.enable()
place, number, forked = sys.argv[1], 0, None
while forked != 0:
    number += 1
    folder = os.path.join(place, str(number))
    while not os.path.exists(folder + ".orders"):
        time.sleep(0.02)
    forked = os.fork()
    if forked:
        _, status, usage = os.wait4(forked, 0)
        with open(folder + ".new", "w") as file:
            code = os.waitstatus_to_exitcode(status)
            json.dump([code, usage.ru_utime + usage.ru_stime], file)
        os.replace(folder + ".new", folder + ".ended")
with open(folder + ".orders") as file:
    sys.argv[:] = json.load(file)
output = os.open(folder + ".output", os.O_WRONLY | os.O_CREAT)
os.dup2(output, 1)
os.dup2(output, 2)
os.close(output)
os.chdir(folder)
os.environ.clear()  # of what imports have set
os.environ.update(environment)
sys.path[0] = os.getcwd()
main = types.ModuleType("__main__")
main.__file__ = os.path.abspath(sys.argv[0])  # a script may leave its folder
sys.modules["__main__"] = main
with open(main.__file__, encoding="utf-8") as file:
    code = compile(file.read(), main.__file__, "exec")
exec(code, main.__dict__)
"""
"""The program of an interpreter: import, wait for arguments, and run a script in a fork."""


@dataclass
class Interpreter:
    """An interpreter that waits for arguments."""

    place: tempfile.TemporaryDirectory[str]
    child: Child
    _number: int = 1

    @classmethod
    def started(cls, environment: Mapping[str, str], imports: Sequence[str]) -> Interpreter:
        """Start an interpreter. Raises OSError."""
        place = tempfile.TemporaryDirectory(prefix="tcdebug-repro-")
        command = [sys.executable, "-c", PROGRAM, place.name, *imports]
        output = Path(place.name, "output")
        child = spawn(
            command, environment, folder=Path(place.name), output=output, limits=Limits(0.0, None)
        )
        return cls(place, child)

    @property
    def folder(self) -> Path:
        """The empty folder in which the next script runs."""
        folder = Path(self.place.name, str(self._number))
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, arguments: Sequence[str], seconds: float) -> tuple[Ended, str]:
        """Run a script in the folder to the end, with its arguments. Also return its output.

        The time limit starts now. If it is exceeded, no further script can run.
        """
        folder, began = self.folder, time.monotonic()
        self._number += 1
        orders, status = folder.with_suffix(".orders"), folder.with_suffix(".ended")
        fresh = folder.with_suffix(".fresh")
        fresh.write_text(json.dumps(list(arguments)))
        self.child.restart_time(Limits(seconds, None, excuse=OVERRUN))
        fresh.replace(orders)
        over: list[tuple[Child, Ended]] = []
        while not over and not status.exists():
            over = wait([self.child], POLL)
        output = folder.with_suffix(".output")
        text = output.read_text(errors="replace") if output.exists() else self._own_output
        if over:
            return over[0][1], text
        code, cpu_seconds = json.loads(status.read_text())
        ended = Ended(
            None, "", code if code >= 0 else None, -min(code, 0), timed_out=False,
            over_memory=False, pid=self.child.pid, seconds=time.monotonic() - began,
            cpu_seconds=cpu_seconds,
        )  # fmt: skip
        return ended, text

    @property
    def _own_output(self) -> str:
        return Path(self.place.name, "output").read_text(errors="replace")

    def end(self) -> None:
        """End the interpreter, and remove its folders."""
        self.child.end()
        self.place.cleanup()


@dataclass
class Interpreters:
    """An interpreter for this environment, once it is started."""

    environment: Mapping[str, str]
    imports: Sequence[str]
    """Modules that it imports, and functions that it calls, as `module:function`."""
    _started: list[Interpreter] = field(default_factory=list)

    def start(self) -> None:
        """Start an interpreter, unless one was started."""
        if not self._started:
            self._started.append(Interpreter.started(self.environment, self.imports))

    def ready(self) -> Interpreter | None:
        """Return the interpreter; None if it was not started, or has ended."""
        return next((i for i in self._started if not has_exited(i.child.pid)), None)

    def end(self) -> None:
        """End the interpreter."""
        for interpreter in self._started:
            interpreter.end()
        self._started.clear()
