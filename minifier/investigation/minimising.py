"""Minimises the candidate of a fault, in the part of the budget that bisecting it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import MinifyStep
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.search.reducing import Interesting, reduce_ahead
from tcdebug.minifier.subjects.one_call import one_call
from tcdebug.minifier.subjects.subject import Subject

Attempt = Callable[[str, Callable[[], None]], None]
"""Runs a step, which an exception ends. Raises BudgetUsed."""


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
    spending = oracle.spending
    try:
        with spending.reserving(max(spending.seconds_left / 2, spending.to_confirm)):
            minimise()
    except BudgetUsed:
        if not spending.affordable:
            raise
        why = "the rest of the budget is kept for the culprit"
        log.emit(Fallback("a smaller graph that fails in the same way was not searched for", why))
