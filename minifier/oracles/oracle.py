"""Asks what becomes of a case under toggles: in isolated children, and no oftener than it must.

Answers are kept on disk, so a run that was interrupted goes on where it stopped. A child may use
ten times the wall time of the first failing run, and the memory that `Limits` gives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog, decoded
from tcdebug.compiler.events.schema import CandidateRan, Fallback
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import Wanted
from tcdebug.minifier.cases.decisions import read_decisions
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.surroundings import surroundings
from tcdebug.minifier.judging.check import run_check
from tcdebug.minifier.judging.endings import HANG, outcome_of
from tcdebug.minifier.oracles.judges import judge_of, keeper_of
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.runs import Run, Runs
from tcdebug.minifier.processes.isolation import (
    Child,
    Fork,
    Limits,
    fork_past_handlers,
    start,
)
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.repros.verify import (
    FAILS,
    PASSES,
    SECONDS,
    UNRESOLVED,
    Verified,
    verify,
    verify_both,
)
from tcdebug.minifier.search.repeats import Rate, Tally
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.backends import EMBEDDED

SLOWER = 10.0
"""How many times the seconds of the first run a candidate may take before it hangs."""
AS_SLOW = 3.0
"""How many times the seconds of the slowest run that ended: a busy machine is no hang."""
LEAST_SECONDS = 5.0
"""No candidate is given less: the machine may be busy."""
LEAST_OF_OTHERS = 15.0
"""Nor less than this with another compiler: a run that crashed did not build all kernels."""
FORK_REFUSED = "fork-based multiprocessing"
"""What autograd says in a child that was forked after it started threads for devices."""


FURTHEST = 8
"""How many questions are looked at for each run that can be begun: some are known, some alike."""


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
        self._most_seconds = limits.seconds
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
        self._candidates = Candidates(target, Ambient.current(), setup)
        self._judge = judge_of(self.wanted, self._candidates, self.folder)
        self._world = (surroundings(), place, str(limits.memory), self._judge.key)
        self._prepare = prepare
        self.jobs = jobs
        self._runs = Runs(jobs, self._start, self._affordable)
        self._fork: Fork = os.fork
        self._began = time.monotonic()

    def ask(self, case: Case, toggles: Toggles, purpose: str) -> Outcome:
        """What becomes of a case under toggles. Raises BudgetUsed."""
        return self.answer(Question(case, toggles, purpose))

    def rate(self, case: Case, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """How often a case that has failed does so again, in so many further runs.

        The run that was asked about because it failed is not counted. Raises BudgetUsed.
        """
        question = Question(case, toggles, "how often it fails")
        key = self._key(question)
        while (missing := runs + 1 - self._times(key)) > 0:
            self._rerun(key, question, missing)
        return self.answers.known[key].again(failure)

    def keep_stages(self, case: Case, toggles: Toggles, folder: Path) -> Outcome:
        """Whether a case compiles and runs, in a run that leaves its stages in a folder of its own.

        Raises BudgetUsed.
        """
        self.ask_ahead(())
        question = Question(case, toggles, "the texts of its stages", folder)
        return self._rerun(f"{self._key(question)} {folder}", question).outcome

    @property
    def likely(self) -> tuple[Outcome, ...]:
        """A pass, then the failure that is hunted: most of what a search leaves out is needed."""
        return (Outcome(Kind.OK), *([self.hunted] if self.hunted else []))

    def known(self, question: Question) -> Outcome | None:
        """The answer, where no further run is needed for it."""
        key = self._key(question)
        return None if self._missing(key) else self._judged(self.answers.known[key].outcome)

    def answer(self, question: Question) -> Outcome:
        """The same, of a question."""
        key = self._key(question)
        known = self._known(key)
        while missing := self._missing(key):
            self._rerun(key, question, missing)
        tally = self.answers.known[key]
        if tally is known:
            self._tell(question, tally.outcome, cached=True)
        else:
            self._runs.give_up(key)
        return self._sorted_out(question, tally.outcome)

    def ask_ahead(self, questions: Iterable[Question]) -> None:
        """Begin with what is likely to be asked next, the likeliest first, where there is room.

        No more of the questions are looked at than there is room for, and none where that is for
        one. The answers are waited for when they are asked for. What was begun before and is no
        longer among the questions is given up.
        """
        if self.jobs > 1:
            self._runs.work_on(self._needed(questions))

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

    @property
    def elapsed(self) -> float:
        """Wall seconds since the oracle was made."""
        return time.monotonic() - self._began

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the runs that have ended."""
        return self._runs.cpu_seconds

    def tighten(self, seconds: float) -> None:
        """Take the time of a first run, which was alone, as the measure of a hang."""
        least = LEAST_SECONDS if self.target.name == EMBEDDED else LEAST_OF_OTHERS
        crowd = max(1.0, self.jobs / (os.cpu_count() or 1))
        limit = crowd * max(least, SLOWER * seconds)
        self.limits = Limits(min(limit, self.limits.seconds), self.limits.memory)

    def _loosen(self, seconds: float) -> None:
        """Give the runs to come as much as one suggests that took long, and ended."""
        limit = min(self._most_seconds, AS_SLOW * seconds)
        self.limits = Limits(max(limit, self.limits.seconds), self.limits.memory)

    def _key(self, question: Question) -> str:
        target = (self.target.name, repr(self.target.call()))
        parts = (question.case.key, *target, *question.toggles.texts(), *self._world)
        return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    def _known(self, key: str) -> Tally | None:
        """What is known of a question; a hang counts only where it had the time that it has now."""
        tally = self.answers.known.get(key)
        if tally is not None and tally.outcome.signature.endswith(HANG):
            return tally if tally.outcome.seconds > 0.9 * self.limits.seconds else None
        return tally

    def _missing(self, key: str) -> int:
        """How many runs a question needs yet, if none of them settles it before."""
        tally = self._known(key)
        if tally is not None and tally.settled(self.hunted, self.passes_needed):
            return 0
        return self.passes_needed - self._times(key)

    def _needed(self, questions: Iterable[Question]) -> Iterator[Run[Question]]:
        """The runs that questions need, those of one before those of the next."""
        seen: set[str] = set()
        for question in islice(questions, FURTHEST * self.jobs):
            key = self._key(question)
            if key not in seen:
                seen.add(key)
                yield from [Run(key, question)] * self._missing(key)

    def _judged(self, outcome: Outcome) -> Outcome:
        """The outcome; a failure that is not wanted is none."""
        if not outcome.failed or self.wanted.counts(outcome):
            return outcome
        message = f"fails, but not in a way that is looked for: {outcome.message}"
        return replace(outcome, kind=Kind.INVALID, message=message)

    def _sorted_out(self, question: Question, outcome: Outcome) -> Outcome:
        """The outcome as it is judged; a failure that is not searched for is kept."""
        judged = self._judged(outcome)
        searched_for = judged.failed and (self.hunted is None or judged.same_bug(self.hunted))
        if outcome.failed and not searched_for:
            self.others.keep(self._candidates, question.case, question.toggles, outcome)
        return judged

    def _tell(self, question: Question, outcome: Outcome, *, cached: bool) -> None:
        self.asked += 1
        event = CandidateRan(
            self.asked, question.purpose, question.toggles.texts(), question.case.size,
            outcome.kind.value, outcome.signature, cached,
            round(outcome.seconds, 3), round(outcome.cpu_seconds, 3),
        )  # fmt: skip
        self.log.emit(event)

    def _rerun(self, key: str, question: Question, missing: int = 1) -> Tally:
        """One run more of a question, of those that it needs, and what its runs say then."""
        before = self._times(key)
        while self._times(key) == before:
            if not self._runs.begin(Run(key, question), missing):
                raise BudgetUsed
            self._collect()
        return self.answers.known[key]

    def _times(self, key: str) -> int:
        """How many runs of a question are known."""
        tally = self._known(key)
        return 0 if tally is None else tally.runs

    def _affordable(self) -> bool:
        return self.reruns < self.budget.reruns and self.elapsed <= self.budget.seconds

    def _start(self, question: Question) -> Child:
        self.reruns += 1

        def work(notify: Callable[[str], None]) -> bytes:
            self._prepare()
            kept = question.kept
            judge = keeper_of(self._candidates, self.folder, kept) if kept else self._judge
            return msgspec.json.encode(judge(question.case, question.toggles, notify))

        return start(work, self.limits, self.folder / "candidates.log", self._fork)

    def _collect(self) -> None:
        """Wait until one of the runs has ended, or more, and keep what they say."""
        for child, run, ended in self._runs.ended():
            outcome = outcome_of(ended)
            if child.fork is os.fork and FORK_REFUSED in outcome.message:
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
            if not ended.timed_out:
                self._loosen(ended.seconds)
            known = self._known(run.key)
            tally = Tally(outcome) if known is None else known.plus(outcome, self.hunted)
            self.answers.add(run.key, tally)
            self.contradicted |= tally.contradictory
            self._tell(run.question, outcome, cached=False)
