"""Runs a repro or a script with a version of torch, and tells how it ended."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tcdebug.minifier.processes.job import SCRIPT_FAILED
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.repros.as_test import write_standalone
from tcdebug.minifier.repros.script_repro import judges_script
from tcdebug.minifier.repros.standalone import judges_graph, standalone
from tcdebug.minifier.subjects.script import outcome_of
from tcdebug.since.environments import Environments, NotInstalled

PASSES, FAILS, UNRESOLVED = 0, 1, 125
"""Exit statuses of a repro script. Any other means that it cannot tell."""
DIFFERENT = "undecided: it fails in a different way"
MISSING = ("ModuleNotFoundError", "ImportError")
"""Exceptions of a script whose packages are not installed."""


class Standing(StrEnum):
    """How a script stands with a version of torch."""

    PASSES = "passes"
    SAME = "fails in the same way"
    OTHER = "fails in a different way"
    UNKNOWN = "cannot be run"


@dataclass(frozen=True)
class Trial:
    """The result for one version. `torch` is exact; it is empty without an environment."""

    version: str
    standing: Standing
    detail: str = ""
    torch: str = ""
    python: str = ""
    signature: str = ""


@dataclass(frozen=True)
class Trials:
    """Runs one script with several versions of torch."""

    script: Path
    args: Sequence[str]
    environments: Environments
    seconds: float

    def run(self, version: str) -> Trial:
        """Run the script with a version.

        A failure of a script that does not judge itself is the same as others if their signatures
        are equal.
        """
        try:
            found = self.environments.interpreter(version)
        except NotInstalled as problem:
            return Trial(version, Standing.UNKNOWN, f"no environment: {problem}")
        with self._runnable() as script:
            status, output = self._end(found.path, script)
        standing, detail, signature = self._judged(status, output)
        return Trial(version, standing, detail, found.torch, found.python, signature)

    @contextlib.contextmanager
    def _runnable(self) -> Iterator[Path]:
        """Yield the script, or a copy of a repro that contains its judge: tcdebug is not there."""
        text = self.script.read_text(errors="replace")
        if standalone(text) == text:
            yield self.script
            return
        with tempfile.TemporaryDirectory(prefix="tcdebug-since-") as folder:
            yield write_standalone(self.script, Path(folder))

    def _end(self, python: Path, script: Path) -> tuple[int | None, str]:
        """Return the exit status, None after the time limit, and the output."""
        command = [str(python), str(script), *self.args]
        limits = Limits(self.seconds, memory=None)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"
            ended = finished(spawn(command, os.environ, output=output, limits=limits))
            return ended.returncode, output.read_text(errors="replace")

    def _judged(self, status: int | None, output: str) -> tuple[Standing, str, str]:
        last = (output.strip().splitlines() or [""])[-1]
        if status is None:
            return Standing.SAME, f"no end after {self.seconds:.0f} s", "hang"
        text = self.script.read_text(errors="replace")
        if judges_graph(text) or judges_script(text):
            if status in (PASSES, FAILS):
                return (Standing.PASSES if status == PASSES else Standing.SAME), last, "repro"
            told = status == UNRESOLVED and (DIFFERENT in output or "undecided: " not in output)
            return (Standing.OTHER if told else Standing.UNKNOWN), _found(output) or last, ""
        outcome = outcome_of(SCRIPT_FAILED if _raised(status, output) else status, output)
        if not outcome.failed:
            return Standing.PASSES, "", ""
        if outcome.message.startswith(MISSING):
            return Standing.UNKNOWN, outcome.message, ""
        return Standing.SAME, outcome.message, outcome.signature


def _raised(status: int, output: str) -> bool:
    return status == 1 and "Traceback (most recent call last):" in output


def _found(output: str) -> str:
    """Return what a repro reports as found, in one line."""
    lines = [line for line in output.splitlines() if line.startswith("found ")]
    return " ".join(lines[-1].split()) if lines else ""
