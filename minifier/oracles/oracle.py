"""Finds out what a candidate does under toggles, in child processes and in few runs.

Answers are kept on disk, so that an interrupted run can be resumed. `Runner` knows how to run a
candidate, `Runs` tracks the active runs, `Answers` holds what is known, `HangLimit` sets the time
limit of a run, `MemoryLimit` that of its memory, and `Spending` tracks the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from typing import Generic

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import CandidateRan
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.layer_names import AUTOGRAD_BACKWARD
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.endings import BEFORE, HANG
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import BudgetUsed, Spending
from tcdebug.minifier.oracles.hang_limit import AS_SLOW, SUSPICIOUS, Duration, HangLimit
from tcdebug.minifier.oracles.memory_limit import MemoryLimit, is_over_memory
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.oracles.runner import Runner
from tcdebug.minifier.oracles.runs import CandidateRun, Runs
from tcdebug.minifier.processes.process import OVERRUN, Child, Limits
from tcdebug.minifier.search.repeats import Rate, Tally

QUESTIONS_AHEAD = 8
"""Questions considered ahead per job. Some are already answered, and some are duplicates."""

POLL = 0.5
"""Seconds between checks of whether a first run is still making progress."""


class NoHang(Exception):
    """The first run of a candidate, which was suspected to hang, has ended with `outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


@dataclass(eq=False)
class Oracle(Generic[CandidateType]):
    """Runs candidates, counts the runs, and remembers the answers.

    A pass is believed only after `passes_needed` runs passed. One run with `failure`, the failure
    that is searched for, settles a question. Other failures, and those that the criteria exclude,
    go to `others`.
    """

    runner: Runner[CandidateType]
    log: EventLog
    answers: Answers
    first_limits: InitVar[Limits]
    spending: Spending
    criteria: Criteria
    others: OtherFailures
    jobs: int = 1
    """The number of runs that may be active at the same time."""
    failure: Outcome | None = None
    passes_needed: int = 1
    contradicted: bool = False
    """Whether some question got contradictory answers."""
    reruns: int = 0
    asked: int = 0
    _hang_limit: HangLimit = field(init=False)
    _memory_limit: MemoryLimit = field(init=False)
    _runs: Runs[Question[CandidateType]] = field(init=False)
    _suspect: Child | None = None
    """The first run, if it is suspected to hang and has not ended."""
    _hang: Outcome | None = None
    """The outcome of the first run, once it has used up its time limit."""

    def __post_init__(self, first_limits: Limits) -> None:
        self._hang_limit = HangLimit(first_limits, self.runner.least_hang_seconds, self.jobs)
        self._memory_limit = MemoryLimit(first_limits.memory)
        self._runs = Runs(self.jobs, self._start, lambda: self.spending.affordable)

    def ask(self, candidate: CandidateType, toggles: Toggles, purpose: str) -> Outcome:
        """Return the outcome of a candidate under toggles. Raises BudgetUsed."""
        return self.answer(Question(candidate, toggles, purpose))

    def ask_first(self, candidate: CandidateType, toggles: Toggles, purpose: str) -> Outcome:
        """Return the outcome of a first run. If the run is suspected to hang, do not wait for it.

        The suspect goes on to its time limit while the search for the cause has begun. If it ends
        earlier, the method of this oracle that is waiting raises NoHang. Later first runs of this
        search may then be silent for three times as long. Raises BudgetUsed.
        """
        question = Question(candidate, toggles, purpose)
        key = self.key(question)
        if key in self.answers.known:
            return self.answer(question)
        if not self._runs.begin(CandidateRun(key, question), 1):
            raise BudgetUsed
        while (child := self._runs.child_of(key)) is not None:
            self._collect(POLL)
            silence = max(SUSPICIOUS, AS_SLOW * self.spending.longest_silence)
            if child.silence > silence and child.phase not in BEFORE:
                suspected = self.runner.outcome(child, child.so_far())
                if suspected is not None and self.criteria.counts(suspected):
                    self._runs.set_aside(child)
                    self._suspect = child
                    self.answers.add(key, Tally(suspected))
                    return suspected
        return self.answer(question)

    def await_suspect(self) -> Outcome | None:
        """Wait for the first run if it was suspected to hang. Return its outcome if it did.

        None if there was no suspicion, or if the budget ended first. Raises NoHang.
        """
        if self._suspect is not None:
            self._suspect.count_unwatched_time()
            self._collect(POLL)  # it may have used up its time while the budget ended
        while self._suspect is not None and self.spending.seconds_left > 0:
            self._collect(POLL)
        return self._hang

    def drop_suspect(self) -> None:
        """End the first run if it was suspected to hang and has not ended."""
        self._suspect = None
        self._runs.end_aside()

    def answer(self, question: Question[CandidateType]) -> Outcome:
        """Return the outcome of the candidate of a question. Raises BudgetUsed."""
        key = self.key(question)
        known = self._known(key)
        while missing := self._missing(key):
            self._rerun(key, question, missing)
        tally = self.answers.known[key]
        if tally is known:
            self._emit(question, tally.outcome, cached=True)
        else:
            self._runs.give_up(key)
        return self._judged_and_kept(question, tally.outcome)

    def answer_unhurried(self, question: Question[CandidateType]) -> Outcome:
        """Answer a question whose run may pass after much longer than others took to fail.

        An exception early in a compile says nothing about how long the whole compile takes. The run
        may take as long as a first one, unless the search is for a hang. Raises BudgetUsed.
        """
        if self.failure is None or self.failure.kind is not Kind.HANG:
            self.reset_hang_limit()
        return self.answer(question)

    def rate(self, candidate: CandidateType, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """Return how often a candidate that has failed fails again, in `runs` further runs.

        The first run is not counted, because it was selected for failing. Raises BudgetUsed.
        """
        question = Question(candidate, toggles, "how often it fails")
        key = self.key(question)
        while (missing := runs + 1 - self._times(key)) > 0:
            self._rerun(key, question, missing)
        return self.answers.known[key].again(failure)

    def count_failures(self, candidate: CandidateType, toggles: Toggles, runs: int) -> None:
        """Count further failing runs of a question that were made without this oracle."""
        key = self.key(Question(candidate, toggles, ""))
        tally = self.answers.known[key]
        self.answers.add(key, Tally(tally.outcome, tally.runs + runs, tally.agreeing + runs))

    def keep_stages(self, question: Question[CandidateType]) -> Outcome:
        """Run a candidate once and keep the texts of its stages; return the outcome.

        Raises BudgetUsed.
        """
        self.ask_ahead(())
        return self._rerun(f"{self.key(question)} {question.kept}", question).outcome

    @property
    def likely(self) -> tuple[Outcome, ...]:
        """A pass, then `failure`: most of what a search leaves out is needed."""
        return (Outcome(Kind.OK), *([self.failure] if self.failure else []))

    def known(self, question: Question[CandidateType]) -> Outcome | None:
        """Return the answer to a question if no further run is needed for it."""
        key = self.key(question)
        return None if self._missing(key) else self._judged(self.answers.known[key].outcome)

    def ask_ahead(self, questions: Iterable[Question[CandidateType]]) -> None:
        """Start runs of the questions that are likely to be asked next, the most likely first.

        Started runs that are no longer among the questions are ended.
        """
        if self.jobs > 1:
            self._runs.work_on(self._needed(questions))

    @property
    def cpu_seconds(self) -> float:
        """CPU-seconds of the runs that have ended."""
        return self._runs.cpu_seconds

    @property
    def limits(self) -> Limits:
        """The limits of the next run."""
        return msgspec.structs.replace(self._hang_limit.limits, memory=self._memory_limit.memory)

    def tighten(self, seconds: float) -> None:
        """Derive the hang limit from the duration of a first run, which ran alone, in seconds."""
        self._hang_limit.tighten(seconds)

    def tighten_for_hangs(self, ended: Outcome) -> None:
        """Derive the hang limit, also that of silence, from a run of the candidate that ended."""
        self._hang_limit.tighten_for_hangs(Duration.of(ended))

    def tighten_memory(self, ended: Outcome) -> None:
        """Derive the memory limit from a run of the candidate that ended."""
        self._memory_limit.tighten(ended)

    def reset_hang_limit(self) -> None:
        """Allow the next run what a first run may take, because it takes longer than the others."""
        self._hang_limit.reset()

    def key(self, question: Question[CandidateType]) -> str:
        """Return the key of a question. Questions with equal keys have the same answer."""
        parts = (question.candidate.key, *question.toggles.texts(), *self.runner.key)
        return blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()

    def _known(self, key: str) -> Tally | None:
        """Return the tally of a question. A run that a smaller limit ended does not count."""
        tally = self.answers.known.get(key)
        if tally is None:
            return None
        if is_over_memory(tally.outcome):
            return tally if self._memory_limit.still_counts(tally.outcome) else None
        if not tally.outcome.signature.endswith(HANG):
            return tally
        return tally if self._hang_limit.still_counts(tally.outcome) else None

    def _missing(self, key: str) -> int:
        """Return how many more runs a question needs if none of them settles it earlier."""
        tally = self._known(key)
        if tally is not None and tally.settled(self.failure, self.passes_needed):
            return 0
        return self.passes_needed - self._times(key)

    def _needed(
        self, questions: Iterable[Question[CandidateType]]
    ) -> Iterator[CandidateRun[Question[CandidateType]]]:
        """Yield the runs that questions need, question by question."""
        seen: set[str] = set()
        for question in islice(questions, QUESTIONS_AHEAD * self.jobs):
            key = self.key(question)
            if key not in seen:
                seen.add(key)
                yield from [CandidateRun(key, question)] * self._missing(key)

    def _judged(self, outcome: Outcome) -> Outcome:
        """Return the outcome. It is invalid if the criteria exclude its failure."""
        if not outcome.failed or self.criteria.counts(outcome):
            return outcome
        message = f"fails, but not in a way that counts: {outcome.message}"
        return replace(outcome, kind=Kind.INVALID, message=message)

    def _judged_and_kept(self, question: Question[CandidateType], outcome: Outcome) -> Outcome:
        """Return the judged outcome. Other failures than `failure` are kept as repros.

        A graph that does not work as several nodes of autograd is no other bug.
        """
        judged = self._judged(outcome)
        candidate, toggles = question.candidate, question.toggles
        searched_for = judged.failed and (self.failure is None or judged.same_bug(self.failure))
        if outcome.failed and not searched_for and AUTOGRAD_BACKWARD not in toggles.off:
            self.others.keep(
                outcome,
                candidate.size,
                lambda path: self.runner.write(candidate, toggles, outcome, path),
            )
        return judged

    def _emit(self, question: Question[CandidateType], outcome: Outcome, *, cached: bool) -> None:
        self.asked += 1
        event = CandidateRan(
            self.asked, question.purpose, question.toggles.texts(), question.candidate.size,
            outcome.kind.value, outcome.signature, cached,
            round(outcome.seconds, 3), round(outcome.cpu_seconds, 3),
        )  # fmt: skip
        self.log.emit(event)

    def _rerun(self, key: str, question: Question[CandidateType], missing: int = 1) -> Tally:
        """Run a question once more. Return the tally of all its runs. Raises BudgetUsed."""
        before = self._times(key)
        while self._times(key) == before:
            if not self._runs.begin(CandidateRun(key, question), missing):
                raise BudgetUsed
            self._collect()
        return self.answers.known[key]

    def _times(self, key: str) -> int:
        """Return how many runs of a question are known."""
        tally = self._known(key)
        return 0 if tally is None else tally.runs

    def _start(self, question: Question[CandidateType]) -> Child:
        """Start a run. It is ended when the budget is used up."""
        self.reruns += 1
        self.spending.reruns += 1
        left, limits = max(self.spending.seconds_left, 0.0), self.limits
        if left < limits.seconds:
            limits = msgspec.structs.replace(limits, seconds=left, excuse=OVERRUN)
        return self.runner.start(question, limits)

    def _collect(self, seconds: float = float("inf")) -> None:
        """Wait until at least one run has ended, at most `seconds`, and record the results.

        Raises NoHang if the suspect has ended by itself.
        """
        for child, run, ended in self._runs.ended(seconds):
            whole = child is self._suspect and self._hang_limit.was_whole(ended.seconds)
            if ended.timed_out and self.spending.seconds_left <= 0 and not whole:
                continue  # the budget ended it, which says nothing about the candidate
            outcome = self.runner.outcome(child, ended)
            if outcome is None:
                continue  # whoever needs the answer starts another run
            if not ended.timed_out:
                self._hang_limit.loosen(Duration.of(ended))
                if not ended.over_memory:
                    self._memory_limit.loosen(outcome)
                self.spending.longest_silence = max(self.spending.longest_silence, ended.silence)
            known = self._known(run.key)
            if known is None:
                known = Tally(outcome)
            elif child is not self._suspect:  # which counted when it was suspected
                known = known.plus(outcome, self.failure)
            self.contradicted |= known.contradictory
            self.answers.add(run.key, known)
            self._emit(run.question, outcome, cached=False)
            if child is self._suspect:
                self._suspect = None
                if not ended.timed_out:
                    self.answers.add(run.key, Tally(outcome))  # shorter runs seemed to hang
                    raise NoHang(outcome)
                self._hang = outcome
