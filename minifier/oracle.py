"""Asks what becomes of a case under toggles: in isolated children, and no oftener than it must.

Answers are kept on disk, so a run that was interrupted goes on where it stopped. A child may use
ten times the wall time of the first failing run, and the memory that `Limits` gives.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from tcdebug.compiler.event_log import EventLog, decoded
from tcdebug.compiler.events import CandidateRan, Fallback
from tcdebug.compiler.gate import Toggles
from tcdebug.minifier.ambient import Ambient
from tcdebug.minifier.candidate import Candidates
from tcdebug.minifier.case import Case
from tcdebug.minifier.check import run_check
from tcdebug.minifier.decisions import read_decisions
from tcdebug.minifier.flaky import Rate, Tally
from tcdebug.minifier.isolation import (
    Child,
    Ended,
    Fork,
    Limits,
    fork_past_handlers,
    start,
    wait,
)
from tcdebug.minifier.judging import judge_of, keeper_of
from tcdebug.minifier.outcome import Kind, Outcome, crash_signature
from tcdebug.minifier.slippage import OtherFailures
from tcdebug.minifier.surroundings import surroundings
from tcdebug.minifier.targets import Target
from tcdebug.minifier.verify import (
    FAILS,
    PASSES,
    SECONDS,
    UNRESOLVED,
    Verified,
    verify,
    verify_both,
)
from tcdebug.minifier.wanted import Wanted

SLOWER = 10.0
"""How many times the seconds of the first run a candidate may take before it hangs."""
LEAST_SECONDS = 5.0
"""No candidate is given less: the machine may be busy."""
BEFORE = ("", "eager", "capture")
"""Phases in which the target has not been reached."""
FORK_REFUSED = "fork-based multiprocessing"
"""What autograd says in a child that was forked after it started threads for devices."""


HANG = "hang"
"""How the signature of what ran out of time ends."""


class BudgetUsed(Exception):
    """The seconds or reruns that the user allowed are used up."""


class Answer(msgspec.Struct, frozen=True):
    """A line of the state file: what was asked, and what its runs said up to then."""

    question: str
    tally: Tally


class Answers:
    """Tallies by question, in a file that survives the process."""

    def __init__(self, path: Path, earlier: Path | None = None) -> None:
        self.path = path
        self.known: dict[str, Tally] = {}
        for source in (earlier, path):
            if source is not None and source.exists():
                self.known.update((a.question, a.tally) for a in read_answers(source))
        path.write_bytes(b"".join(_line(q, t) for q, t in self.known.items()))

    def add(self, question: str, tally: Tally) -> None:
        """Remember what a question's runs say by now; the line is whole or absent."""
        self.known[question] = tally
        with self.path.open("ab") as file:
            file.write(_line(question, tally))


def _line(question: str, tally: Tally) -> bytes:
    return msgspec.json.encode(Answer(question, tally)) + b"\n"


def read_answers(path: Path) -> Iterator[Answer]:
    """The answers of a state file; a torn last line is left out."""
    return decoded(path.read_bytes().splitlines(), Answer)


@dataclass(frozen=True)
class Budget:
    """What a whole investigation may use."""

    seconds: float = 3600.0
    reruns: int = 2000


@dataclass(frozen=True)
class Question:
    """A case, the toggles it is compiled under, and what the answer is for."""

    case: Case
    toggles: Toggles
    purpose: str
    kept: Path | None = None
    """Where the texts of its stages go, if that is what it is asked for."""


class Oracle:
    """Runs candidates of one target, counts them, and knows what it has been told before.

    `passes_needed` is how many runs must pass before a pass is believed; `hunted` the failure that
    one run settles. Failures of other signatures, and those that are not wanted, go to `others`.
    """

    def __init__(
        self,
        target: Target,
        log: EventLog,
        answers: Answers,
        limits: Limits,
        budget: Budget,
        prepare: Callable[[], None] = lambda: None,
        *,
        wanted: Wanted | None = None,
        others: OtherFailures | None = None,
        setup: str = "",
        place: str = "",
        jobs: int = 1,
    ) -> None:
        assert log.folder is not None
        self.target = target
        self.log = log
        self.answers = answers
        self.limits = limits
        self.budget = budget
        self.folder = log.folder
        self.wanted = wanted or Wanted()
        self.others = others or OtherFailures(self.folder / "other", log)
        self.hunted: Outcome | None = None
        self.passes_needed = 1
        self.contradicted = False
        """Whether a question was answered in two ways."""
        self.reruns = 0
        self.asked = 0
        self.cpu_seconds = 0.0
        self._candidates = Candidates(target, Ambient.current(), setup)
        self._judge = judge_of(self.wanted, self._candidates, self.folder)
        self._world = (surroundings(), place, str(limits.memory), self._judge.key)
        self._prepare = prepare
        self.jobs = jobs
        self._running: dict[Child, _Running] = {}
        self._fork: Fork = os.fork
        self._started = time.monotonic()

    def ask(self, case: Case, toggles: Toggles, purpose: str) -> Outcome:
        """What becomes of a case under toggles. Raises BudgetUsed."""
        question = Question(case, toggles, purpose)
        key = self._question(case, toggles)
        known = tally = self._known(key)
        while tally is None or not tally.settled(self.hunted, self.passes_needed):
            tally = self._rerun(key, question)
        if tally is known:
            self._tell(question, tally.outcome, cached=True)
        return self._sorted_out(question, tally.outcome)

    def rate(self, case: Case, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """How often a case that has failed does so again, in so many further runs.

        The run that was asked about because it failed is not counted. Raises BudgetUsed.
        """
        question = Question(case, toggles, "how often it fails")
        key = self._question(case, toggles)
        tally = self._known(key)
        while tally is None or tally.runs <= runs:
            tally = self._rerun(key, question)
        return tally.again(failure)

    def keep_stages(self, case: Case, toggles: Toggles, folder: Path) -> Outcome:
        """Whether a case compiles and runs, in a run that leaves its stages in a folder of its own.

        Raises BudgetUsed.
        """
        self.ask_ahead(())
        question = Question(case, toggles, "the texts of its stages", folder)
        return self._rerun(f"{self._question(case, toggles)} {folder}", question).outcome

    def ask_ahead(self, questions: Sequence[Question]) -> None:
        """Begin with what is likely to be asked next, the likeliest first, where there is room.

        The answers are waited for when they are asked for. What was begun before and is no longer
        among the questions is given up.
        """
        if self.jobs == 1:
            return
        keys = {self._question(q.case, q.toggles): q for q in questions}
        for child in [c for c, running in self._running.items() if running.key not in keys]:
            self._stop(child)
        begun = {running.key for running in self._running.values()}
        for key, question in keys.items():
            tally = self._known(key)
            settled = tally is not None and tally.settled(self.hunted, self.passes_needed)
            if len(self._running) < self.jobs and key not in begun and not settled:
                with contextlib.suppress(BudgetUsed):
                    self._begin(key, question)

    def verify(self, path: Path, off: Sequence[str] = ()) -> Verified:
        """Run a repro script by itself, with units switched off, as its failure was judged."""
        self.ask_ahead(())
        if not self.wanted.check:
            return verify(path, off)
        outcome = run_check(self.wanted.check, path, self.folder, off, SECONDS)
        status = {Kind.OK: PASSES, Kind.BAD: FAILS}.get(outcome.kind, UNRESOLVED)
        return Verified(status, outcome.seconds, outcome.message)

    def verify_both(self, path: Path, off: Sequence[str]) -> tuple[Verified, Verified]:
        """Run a repro script by itself, as it is and with units switched off."""
        if self.wanted.check:
            return self.verify(path), self.verify(path, off)
        self.ask_ahead(())
        return verify_both(path, off)

    def of(self, case: Case) -> CaseOracle:
        """This oracle, asked about one case."""
        return CaseOracle(self, case)

    @property
    def elapsed(self) -> float:
        """Wall seconds since the oracle was made."""
        return time.monotonic() - self._started

    def tighten(self, seconds: float) -> None:
        """Take the time of a first run as the measure of a hang."""
        limit = max(LEAST_SECONDS, SLOWER * seconds)
        self.limits = Limits(min(limit, self.limits.seconds), self.limits.memory)

    def _question(self, case: Case, toggles: Toggles) -> str:
        target = (self.target.name, repr(self.target.call()))
        parts = (case.key, *target, *toggles.texts(), *self._world)
        return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    def _known(self, key: str) -> Tally | None:
        """What is known of a question; a hang counts only where it had the time that it has now."""
        tally = self.answers.known.get(key)
        if tally is not None and tally.outcome.signature.endswith(HANG):
            return tally if tally.outcome.seconds > 0.9 * self.limits.seconds else None
        return tally

    def _sorted_out(self, question: Question, outcome: Outcome) -> Outcome:
        """The outcome; one that is not searched for is kept, and one not wanted is no failure."""
        if not outcome.failed:
            return outcome
        counts = self.wanted.counts(outcome)
        if not counts or not (self.hunted is None or outcome.same_bug(self.hunted)):
            self.others.keep(self._candidates, question.case, question.toggles, outcome)
        message = f"fails, but not in a way that is looked for: {outcome.message}"
        return outcome if counts else replace(outcome, kind=Kind.INVALID, message=message)

    def _tell(self, question: Question, outcome: Outcome, *, cached: bool) -> None:
        self.asked += 1
        event = CandidateRan(
            self.asked, question.purpose, question.toggles.texts(), question.case.size,
            outcome.kind.value, outcome.signature, cached,
            round(outcome.seconds, 3), round(outcome.cpu_seconds, 3),
        )  # fmt: skip
        self.log.emit(event)

    def _rerun(self, key: str, question: Question) -> Tally:
        """One run more of a question, and what its runs say then."""
        before = self._runs(key)
        while self._runs(key) == before:
            if not any(running.key == key for running in self._running.values()):
                self._begin(key, question)
            self._collect()
        return self.answers.known[key]

    def _runs(self, key: str) -> int:
        tally = self._known(key)
        return 0 if tally is None else tally.runs

    def _begin(self, key: str, question: Question) -> None:
        """Start a run, in the place of one that was only begun ahead if there is no other."""
        if self.reruns >= self.budget.reruns or self.elapsed > self.budget.seconds:
            raise BudgetUsed
        while len(self._running) >= self.jobs:
            self._stop(next(iter(self._running)))
        self.reruns += 1

        def work(notify: Callable[[str], None]) -> bytes:
            self._prepare()
            kept = question.kept
            judge = keeper_of(self._candidates, self.folder, kept) if kept else self._judge
            return msgspec.json.encode(judge(question.case, question.toggles, notify))

        child = start(work, self.limits, self.folder / "candidates.log", self._fork)
        self._running[child] = _Running(key, question, self._fork)

    def _collect(self) -> None:
        """Wait until one of the runs has ended, or more, and keep what they say."""
        for child, ended in wait(list(self._running)):
            running = self._running.pop(child)
            self.cpu_seconds += ended.cpu_seconds
            outcome = outcome_of(ended)
            if running.fork is os.fork and FORK_REFUSED in outcome.message:
                self.log.emit(Fallback("os.fork", outcome.message))
                self._fork = fork_past_handlers
                continue  # whoever needs the answer begins again
            decisions = tuple(read_decisions(self.folder / f"events-{ended.pid}.jsonl"))
            outcome = replace(
                outcome,
                decisions=decisions or outcome.decisions,
                seconds=ended.seconds,
                cpu_seconds=ended.cpu_seconds,
            )
            known = self._known(running.key)
            tally = Tally(outcome) if known is None else known.plus(outcome, self.hunted)
            self.answers.add(running.key, tally)
            self.contradicted |= tally.contradictory
            self._tell(running.question, outcome, cached=False)

    def _stop(self, child: Child) -> None:
        del self._running[child]
        self.cpu_seconds += child.end().cpu_seconds


@dataclass(frozen=True)
class _Running:
    """What a child works on."""

    key: str
    question: Question
    fork: Fork


@dataclass(frozen=True)
class CaseOracle:
    """An oracle that is asked about one case only."""

    oracle: Oracle
    case: Case

    @property
    def contradicted(self) -> bool:
        """Whether a question was answered in two ways."""
        return self.oracle.contradicted

    def need(self, passes: int) -> None:
        """Believe a pass only after so many."""
        self.oracle.passes_needed = passes

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        """What becomes of the case under toggles. Raises BudgetUsed."""
        return self.oracle.ask(self.case, toggles, purpose)

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """How often the case fails again in so many further runs. Raises BudgetUsed."""
        return self.oracle.rate(self.case, toggles, failure, runs)


def outcome_of(ended: Ended) -> Outcome:
    """The outcome of a child, also of one that did not live to tell it."""
    phase = ended.phase
    if ended.timed_out:
        kind = Kind.INVALID if phase in BEFORE else Kind.HANG
        return Outcome(kind, phase, f"{phase} | {HANG}", f"no end after {ended.seconds:.0f} s")
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
