"""Versions of a script, each run in a fork of a process that has imported torch and nothing else.

A fork runs the script without importing torch again. A failure that depends on how torch is
imported does not occur there, so the final version runs again in fresh processes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.cases.user_frames import TRACEBACK, frames, raising_stack, stack_of_user
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.cache_folders import known_kernels, link_kernels
from tcdebug.minifier.processes.channel import Parent
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.process import Child, Ended, Limits
from tcdebug.minifier.subjects.script import outcome_of

LEAST_HANG_SECONDS = 20.0
"""The smallest time limit of a version, in seconds."""
DIFFERENT_VALUES = re.compile(r"are not (?:close|equal)!")
"""What torch.testing says about tensors, numbers and sequences with different values."""
ATTRIBUTE = re.compile(r"The values for attribute '(\w+)' do not match")
ASSERTION = "script | AssertionError"
"""What the signatures of assertions begin with."""
DIFFERENCE = re.compile(r"Greatest relative difference: (\S+)")

CLEARLY = 1e-4
"""A relative difference below this may be rounding."""

Execute = Callable[[Path, ScriptText, Toggles], int]
"""Runs a script from a path under toggles in this process. Returns its exit status."""


@dataclass(eq=False)
class ForkedScripts:
    """Runs versions of a script in forks of this process, each with its own caches and folder."""

    job: Job
    folder: Path
    """A folder for the candidates."""
    execute: Execute
    failure: Outcome | None = None
    """The failure that counts, once it is known. Another failure makes a version invalid."""
    processes: int = 1
    """The number of processes that run one after another with the same caches."""
    least_hang_seconds: float = LEAST_HANG_SECONDS
    quick: tuple[Toggles, float] | None = None
    """Toggles under which a run is short, and its time limit in seconds."""
    warm_up: Callable[[], None] | None = None
    """What each fork does before it runs a script; None if nothing, or if this process has done
    it."""
    warm: bool = False
    """Whether the scripts run after that."""
    raised: dict[str, frozenset[int]] = field(default_factory=dict)
    """The lines of the stack with which a script raised, by its key; of Dynamo's stack too."""
    _started: int = 0
    _running: dict[Child, tuple[ScriptText, Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._kernels = self.folder / "kernels"
        self._kernels.mkdir(exist_ok=True)
        link_kernels(known_kernels(), self._kernels, headers_only=True)

    @property
    def key(self) -> tuple[str, ...]:
        """Everything an answer depends on besides the question."""
        return (platform.python_version(), version("torch"), str(self.processes), str(self.warm))

    def start(self, question: Question[ScriptText], limits: Limits) -> Child:
        """Run a script in a fork, in its own folder."""
        self._started += 1
        place = self.folder / str(self._started)
        script = place / "script" / Path(self.job.script).name
        script.parent.mkdir(parents=True)
        script.write_text(question.candidate.text)
        (place / "caches").mkdir()
        link_kernels(self._kernels, place / "caches")

        def work(parent: Parent) -> bytes:
            parent("script")
            _prepare(place / "caches")
            if self.warm_up is not None:
                self.warm_up()
            for _ in range(self.processes - 1):
                _run_first(lambda: self.execute(script, question.candidate, question.toggles))
            os._exit(self.execute(script, question.candidate, question.toggles))

        seconds = limits.seconds
        if self.quick is not None and question.toggles == self.quick[0]:
            seconds = min(seconds, self.quick[1])
        child = fork(work, Limits(seconds, None), place / "output")
        self._running[child] = question.candidate, place
        return child

    def outcome(self, child: Child, ended: Ended) -> Outcome:
        """Return how the script ended. Other failures than `failure` are invalid."""
        script, place = self._running.pop(child)
        text = (place / "output").read_text(errors="replace")
        if ended.timed_out:
            outcome = Outcome(Kind.HANG, "script", "script | hang", "no end")
        else:
            outcome = without_values(self._ending(ended, text), text, str(place))
        link_kernels(place / "caches", self._kernels)
        shutil.rmtree(place, ignore_errors=True)
        if outcome.kind is Kind.EXCEPTION:
            self.raised[script.key] = _lines(text, place)
        if outcome.failed and self.failure is not None and not self.failure.same_bug(outcome):
            outcome = Outcome(Kind.INVALID, "script", message=outcome.message)
        return replace(outcome, seconds=ended.seconds, cpu_seconds=ended.cpu_seconds)

    def _ending(self, ended: Ended, text: str) -> Outcome:
        return outcome_of(ended.returncode, text, self.job.wanted.prints)

    def write(self, candidate: ScriptText, toggles: Toggles, outcome: Outcome, path: Path) -> None:
        """Write the text of a script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(candidate.text)

    def clear(self) -> None:
        """Remove the folder with all candidates."""
        shutil.rmtree(self.folder, ignore_errors=True)


def without_values(outcome: Outcome, text: str, folder: str) -> Outcome:
    """Return an outcome whose signature does not depend on values that a smaller script changes.

    For an assertion in the script's own files, which are in `folder`, or in torch.testing, the
    signature says only whether values or an attribute differ. The message ends with the greatest
    relative difference.
    """
    if outcome.kind is not Kind.EXCEPTION:
        return outcome
    last = text.rpartition(TRACEBACK)[2] or text
    name = outcome.message.partition(":")[0].strip()
    if name.rpartition(".")[2] != "AssertionError":
        return outcome
    places = [frame.file for frame in raising_stack(text)]
    if places and not (places[-1].startswith(folder) or "/torch/testing/" in places[-1]):
        return outcome
    difference = DIFFERENCE.search(last)
    message = "\n".join([outcome.message, *([difference[0]] if difference else [])])
    return replace(outcome, signature=_of_assertion(last), message=message)


def is_failure(signature: str, outcome: Outcome) -> bool:
    """Return whether an outcome of a fork is the failure that a whole script has.

    `signature` is that of the script's failure, which contains its message. An assertion of the
    script in a fork has a signature without it; see `without_values`.
    """
    if outcome.signature == signature:
        return True
    return signature.startswith(ASSERTION) and outcome.signature == _of_assertion(signature)


def _of_assertion(text: str) -> str:
    """Return a signature that says for what kind of reason an assertion is false."""
    attribute = ATTRIBUTE.search(text)
    kind = (
        f"other {attribute[1]}"
        if attribute
        else "values"
        if DIFFERENT_VALUES.search(text)
        else "false"
    )
    return f"{ASSERTION} | {kind}"


def _lines(text: str, folder: Path) -> frozenset[int]:
    """Return the lines of a script in a folder at which its output says that it raised."""
    stack = [*raising_stack(text), *frames(stack_of_user(text))]
    return frozenset(f.line for f in stack if Path(f.file).is_relative_to(folder))


def as_clear(first: Outcome, other: Outcome) -> bool:
    """Return whether values still differ about as much, and by more than rounding."""
    before, after = _difference(first), _difference(other)
    if before is None or after is None or before < CLEARLY:
        return True
    return not after < min(before, 1.0) * 1e-2 + CLEARLY * 0.5


def _difference(outcome: Outcome) -> float | None:
    found = DIFFERENCE.search(outcome.message)
    return float(found[1]) if found else None


def _prepare(caches: Path) -> None:
    """Give this fork what a fresh process has: its own random state, caches and settings."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches)
    os.environ["TCDEBUG_LOG"] = "0"
    os.environ.pop("TCDEBUG_OFF", None)
    random.seed()
    with contextlib.suppress(ImportError):
        import numpy as np  # noqa: PLC0415 - only if it is installed

        np.random.seed()


def _run_first(execute: Callable[[], int]) -> None:
    """Run the script in a fork. If that fails, end this process in the same way."""
    pid = os.fork()
    if pid == 0:
        os._exit(execute())
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    if code:
        os._exit(code)
