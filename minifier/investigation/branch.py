"""One fault under investigation: the candidate that isolates it, and how that is minimised."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import MinifyStep
from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.bisection.bisect import Fault
from tcdebug.minifier.bisection.enabled import Enabled
from tcdebug.minifier.cases.outcome import PHASES, Kind, Outcome
from tcdebug.minifier.investigation.report import StageDiff
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.repros.verify import COLD_SECONDS
from tcdebug.minifier.search.reducing import Interesting, reduce_ahead
from tcdebug.minifier.subjects.one_call import one_call
from tcdebug.minifier.subjects.subject import Subject

DECIDES = "with {1} off, it fails with {0} on and passes with {0} off"
"""A note on a suspect without which it fails in a different way if the other units are on."""

HANGING_REPRO = COLD_SECONDS + 15.0
"""The seconds that the repro of a hang takes, with the comparison of stages before it."""
CALLED_INSTEAD = ("decompose.", "lower.")
"""The families of units without which the compiler calls an operator as eager does."""
PARTITION = "partition."
"""The family of units that divide a graph into forward and backward."""

Attempt = Callable[[str, Callable[[], None]], None]
"""Runs a step, which an exception ends. Raises BudgetUsed."""
RECENT = 32
"""The number of passing candidates that are kept. The nearest is shown beside the repro."""


@dataclass
class Branch(Generic[CandidateType]):
    """One fault, and the candidate that isolates it."""

    failure: Outcome
    base: Toggles
    """The toggles that switch off what belongs to other faults."""
    best: CandidateType
    fault: Fault | None = None
    uncertain: bool = False
    """Whether a complete search did not confirm the fault."""
    alternatives: tuple[Fault, ...] = ()
    """Faults that cause the same failure in the same candidate."""
    is_layer: bool = False
    """Whether a whole layer of torch is at fault rather than a unit."""
    within: tuple[str, ...] = ()
    """The unit of the layer that decides where only what the failure needs is on besides."""
    misregistered: list[str] = field(default_factory=list)
    """Errors in the registration of the user's custom operators."""
    enabled: Enabled | None = None
    passing: deque[CandidateType] = field(default_factory=lambda: deque(maxlen=RECENT))
    stages: StageDiff | None = None
    repro: Path | None = None
    short: Path | None = None
    """A short form of the repro that was seen to fail in the same way."""
    fails: bool = False
    """Whether the repro was seen to fail by itself."""
    passes: bool = False
    """Whether it was seen to pass with the culprit off."""
    only_fails: bool = False
    """Whether it was seen to fail with only the units on that the fault needs."""
    confirmed: bool = False

    @property
    def off(self) -> list[str]:
        """The units without which it passes."""
        return [fault.unit for fault in self.faults]

    @property
    def faults(self) -> list[Fault]:
        """The fault and its alternatives."""
        return [self.fault, *self.alternatives] if self.fault is not None else []

    def whole_without(self, ask: Callable[[Sequence[str]], Outcome]) -> Outcome:
        """Return the outcome of the whole with units off: those of this fault.

        If it still fails, but not without a partner of the culprit, that becomes the culprit. The
        two are at fault together in the smallest candidate. In the whole, other steps may take the
        place of the one, but not of the other: a wrong plan of memory damages every buffer. If the
        partners are not known, the steps of the partition are tried, the last first: they act on
        all of backward.
        """
        left = ask(self.off)
        if not left.failed or self.fault is None or self.alternatives:
            return left
        taken = {decision.unit: decision for decision in self.fault.failure.decisions}
        partition = [unit for unit in reversed(taken) if unit.startswith(PARTITION)]
        for unit in self.enabled.partners if self.enabled else partition:
            if unit in taken and (without := ask([unit])).kind is Kind.OK:
                if self.enabled:
                    others = (other for other in self.enabled.partners if other != unit)
                    partners = (*others, self.fault.unit)
                    self.enabled = replace(self.enabled, unit=unit, partners=partners)
                self.fault = replace(self.fault, decisions=(taken[unit],), whole_unit=True)
                return without
        return left

    def raises_instead(self, left: Outcome) -> bool:
        """Return whether only what takes the place of the culprit raises.

        Without a decomposition or a lowering, the compiler calls the operator. If the whole raises
        then, but with the culprit ran at least as far and returned a wrong value, the call raises.
        """
        return (
            self.failure.kind is Kind.WRONG
            and left.kind in (Kind.EXCEPTION, Kind.CRASH)
            and PHASES.index(left.phase) <= PHASES.index(self.failure.phase)
            and all(unit.startswith(CALLED_INSTEAD) for unit in self.off)
        )

    @property
    def only(self) -> list[str]:
        """The only units that must be on, if they are known."""
        return self.enabled.units() if self.enabled is not None else []

    @property
    def nearest_passing(self) -> CandidateType | None:
        """The passing candidate that is closest in size; the latest of several."""
        return min(reversed(self.passing), key=lambda c: abs(c.size - self.best.size), default=None)


@dataclass(frozen=True)
class Minimising(Generic[CandidateType]):
    """The search for the smallest candidate with the same failure and, once known, culprit."""

    subject: Subject[CandidateType]
    oracle: Oracle[CandidateType]
    log: EventLog
    attempt: Attempt

    def run(self, branch: Branch[CandidateType]) -> None:
        """Minimise the candidate of a fault. Raises BudgetUsed."""

        def ask(question: Question[CandidateType]) -> Outcome:
            outcome = self.oracle.answer(question)
            if outcome.kind is Kind.OK and question.toggles == branch.base:
                branch.passing.append(question.candidate)
            return outcome

        def interesting(
            ask: Callable[[Question[CandidateType]], Outcome],
        ) -> Interesting[CandidateType]:
            def fails(candidate: CandidateType, purpose: str) -> bool:
                failure = ask(Question(candidate, branch.base, purpose))
                if not branch.failure.still_shown_by(failure):
                    return False
                if not branch.off:
                    return True
                toggles = branch.base.without(off=branch.off)
                outcome = ask(Question(candidate, toggles, f"{purpose}, culprit off"))
                return outcome.kind is Kind.OK

            return fails

        self.attempt(
            "the search for a call that fails alone",
            lambda: self._start_at_one_call(branch, interesting(ask)),
        )
        reducer = self.subject.reducer(branch.best, self.log)
        if reducer is None:
            return
        try:
            reduce_ahead(reducer, ask, self.oracle, interesting)
        finally:
            branch.best = reducer.best

    def _start_at_one_call(
        self, branch: Branch[CandidateType], fails: Interesting[CandidateType]
    ) -> None:
        """Start from a call that fails alone, if one is found."""
        failing = branch.best, branch.base, branch.failure
        if found := one_call(self.subject, self.oracle, failing, fails):
            step, part = found[0].replace(" ", "_"), found[1]
            self.log.emit(MinifyStep(step, branch.best.size, part.size, "nodes"))
            branch.best = part


def leaving_half(
    oracle: Oracle[CandidateType], log: EventLog, minimise: Callable[[], None]
) -> None:
    """Minimise in at most half of the seconds that are left. Raises BudgetUsed if none are."""
    with _kept_for("the culprit", oracle, log), oracle.spending.at_most(math.inf):
        minimise()


def leaving_repro(
    oracle: Oracle[CandidateType],
    log: EventLog,
    branch: Branch[CandidateType],
    minimise: Callable[[], None],
) -> None:
    """Minimise, but keep the seconds that a repro of a hang takes. Raises BudgetUsed if none are.

    Without its repro, a culprit is not confirmed.
    """
    seconds = HANGING_REPRO if branch.failure.kind is Kind.HANG else 0.0
    with _kept_for("the repro", oracle, log), oracle.spending.reserving(seconds):
        minimise()


@contextlib.contextmanager
def _kept_for(what: str, oracle: Oracle[CandidateType], log: EventLog) -> Iterator[None]:
    """End a block when it has used up its part of the budget. Raises BudgetUsed if all is used."""
    try:
        yield
    except BudgetUsed:
        if not oracle.spending.affordable:
            raise
        why = f"the rest of the budget is kept for {what}"
        log.emit(Fallback("a smaller graph that fails in the same way was not searched for", why))


def decides_alone(
    suspected: Branch[CandidateType], asked: CandidateOracle[CandidateType]
) -> list[str]:
    """Return a note if a suspect decides where only what the failure needs is on besides."""
    enabled = suspected.enabled
    if enabled is None or len(suspected.off) != 1:
        return []
    others = [unit for unit in enabled.units() if unit != enabled.unit]
    base = suspected.base
    without = base.allowing(others) if others else base.without(off=[ALL])
    try:
        outcome = asked.ask(without, f"only what {enabled.unit} needs")
    except BudgetUsed:
        return []
    off = f"all units but {', '.join(others)}" if others else "all other units"
    return [DECIDES.format(enabled.unit, off)] * (outcome.kind is Kind.OK)
