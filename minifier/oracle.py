"""Asks what becomes of a case under toggles: each question once, in an isolated child.

Answers are kept on disk, so a run that was interrupted goes on where it stopped. A child may use
ten times the wall time of the first failing run, and the memory that `Limits` gives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import msgspec
import torch

from tcdebug.compiler.event_log import EventLog, decoded
from tcdebug.compiler.events import CandidateRan, Fallback
from tcdebug.compiler.gate import Toggles
from tcdebug.minifier.case import Case
from tcdebug.minifier.decisions import read_decisions
from tcdebug.minifier.isolation import (
    Ended,
    Fork,
    Limits,
    fork_past_handlers,
    run_isolated,
)
from tcdebug.minifier.outcome import Kind, Outcome, crash_signature
from tcdebug.minifier.replay import judge
from tcdebug.minifier.targets import Target

SLOWER = 10.0
"""How many times the seconds of the first run a candidate may take before it hangs."""
LEAST_SECONDS = 5.0
"""No candidate is given less: the machine may be busy."""
BEFORE = ("", "eager", "capture")
"""Phases in which the target has not been reached."""
FORK_REFUSED = "fork-based multiprocessing"
"""What autograd says in a child that was forked after it started threads for devices."""


class BudgetUsed(Exception):
    """The seconds or reruns that the user allowed are used up."""


class Answer(msgspec.Struct, frozen=True):
    """A line of the state file: what was asked, and the outcome."""

    question: str
    outcome: Outcome


class Answers:
    """Outcomes by question, in a file that survives the process."""

    def __init__(self, path: Path, earlier: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        for source in (earlier, path):
            if source is not None and source.exists():
                self.known.update((a.question, a.outcome) for a in read_answers(source))
        path.write_bytes(b"".join(_line(q, o) for q, o in self.known.items()))

    def add(self, question: str, outcome: Outcome) -> None:
        """Remember an outcome; the line is whole or absent."""
        self.known[question] = outcome
        with self.path.open("ab") as file:
            file.write(_line(question, outcome))


def _line(question: str, outcome: Outcome) -> bytes:
    return msgspec.json.encode(Answer(question, outcome)) + b"\n"


def read_answers(path: Path) -> Iterator[Answer]:
    """The answers of a state file; a torn last line is left out."""
    return decoded(path.read_bytes().splitlines(), Answer)


@dataclass(frozen=True)
class Budget:
    """What a whole investigation may use."""

    seconds: float = 3600.0
    reruns: int = 2000


class Oracle:
    """Runs candidates of one target, counts them, and knows what it has been told before."""

    def __init__(
        self,
        target: Target,
        log: EventLog,
        answers: Answers,
        limits: Limits,
        budget: Budget,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self.target = target
        self.log = log
        self.answers = answers
        self.limits = limits
        self.budget = budget
        self.reruns = 0
        self.asked = 0
        self.cpu_seconds = 0.0
        self._prepare = prepare
        self._fork: Fork = os.fork
        self._started = time.monotonic()
        assert log.folder is not None
        self.folder = log.folder

    def ask(self, case: Case, toggles: Toggles, purpose: str) -> Outcome:
        """What becomes of a case under toggles. Raises BudgetUsed."""
        self.asked += 1
        question = self._question(case, toggles)
        outcome = self.answers.known.get(question)
        cached = outcome is not None
        if outcome is None:
            if self.reruns >= self.budget.reruns or self.elapsed > self.budget.seconds:
                raise BudgetUsed
            outcome = self._run(case, toggles)
            self.answers.add(question, outcome)
        event = CandidateRan(
            self.asked, purpose, toggles.texts(), case.size, outcome.kind.value, outcome.signature,
            cached, round(outcome.seconds, 3), round(outcome.cpu_seconds, 3),
        )  # fmt: skip
        self.log.emit(event)
        return outcome

    @property
    def elapsed(self) -> float:
        """Wall seconds since the oracle was made."""
        return time.monotonic() - self._started

    def tighten(self, seconds: float) -> None:
        """Take the time of a first run as the measure of a hang."""
        limit = max(LEAST_SECONDS, SLOWER * seconds)
        self.limits = Limits(min(limit, self.limits.seconds), self.limits.memory)

    def _question(self, case: Case, toggles: Toggles) -> str:
        parts = (case.key, repr(self.target.call()), *toggles.texts(), str(torch.__version__))
        return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    def _run(self, case: Case, toggles: Toggles) -> Outcome:
        outcome = self._run_once(case, toggles)
        if self._fork is os.fork and FORK_REFUSED in outcome.message:
            self.log.emit(Fallback("os.fork", outcome.message))
            self._fork = fork_past_handlers
            outcome = self._run_once(case, toggles)
        return outcome

    def _run_once(self, case: Case, toggles: Toggles) -> Outcome:
        self.reruns += 1
        filename = str(self.folder / "candidate.py")

        def work(notify: Callable[[str], None]) -> bytes:
            self._prepare()
            outcome = judge(case, self.target, toggles, notify, filename)
            return msgspec.json.encode(outcome)

        ended = run_isolated(work, self.limits, self.folder / "candidates.log", self._fork)
        self.cpu_seconds += ended.cpu_seconds
        outcome = outcome_of(ended)
        decisions = tuple(read_decisions(self.folder / f"events-{ended.pid}.jsonl"))
        return replace(
            outcome,
            decisions=decisions,
            seconds=ended.seconds,
            cpu_seconds=ended.cpu_seconds,
        )


def outcome_of(ended: Ended) -> Outcome:
    """The outcome of a child, also of one that did not live to tell it."""
    phase = ended.phase
    if ended.timed_out:
        kind = Kind.INVALID if phase in BEFORE else Kind.HANG
        return Outcome(kind, phase, f"{phase} | hang", f"no end after {ended.seconds:.0f} s")
    if ended.over_memory:
        kind = Kind.INVALID if phase in BEFORE else Kind.KILLED
        return Outcome(kind, phase, f"{phase} | out of memory", "over the memory limit")
    if ended.answer is not None:
        return msgspec.json.decode(ended.answer, type=Outcome)
    kind = Kind.INVALID if phase in BEFORE else Kind.CRASH
    if ended.signal:
        signature = crash_signature(ended.signal, phase)
        return Outcome(kind, phase, signature, f"ended by signal {ended.signal}")
    return Outcome(kind, phase, f"{phase} | exit", "the process ended without an answer")
