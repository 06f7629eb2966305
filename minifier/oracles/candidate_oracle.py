"""Asks an oracle about a single candidate, as a bisection does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask, Verdict
from tcdebug.minifier.bisection.certainty import CertainVerdict, certain_verdict
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType, Question
from tcdebug.minifier.search.rehearsal import search_ahead
from tcdebug.minifier.search.repeats import Rate

Result = TypeVar("Result")


@dataclass(frozen=True)
class CandidateOracle(Generic[CandidateType]):
    """An oracle that is asked about a single candidate."""

    oracle: Oracle[CandidateType]
    candidate: CandidateType

    @property
    def contradicted(self) -> bool:
        """Whether some question got contradictory answers."""
        return self.oracle.contradicted

    def require_passes(self, passes: int) -> None:
        """Believe a pass only after this many runs passed."""
        self.oracle.passes_needed = passes

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        """Return the outcome of the candidate under toggles. Raises BudgetUsed."""
        return self.oracle.ask(self.candidate, toggles, purpose)

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        """Return how often the candidate fails again in `runs` further runs. Raises BudgetUsed."""
        return self.oracle.rate(self.candidate, toggles, failure, runs)

    def certain(
        self, failure: Outcome, base: Toggles, search: Callable[[Ask], Verdict], wanted: float
    ) -> CertainVerdict:
        """Return the verdict of a search once it is certain; see `certain_verdict`.

        If the budget ends after a search has named faults, these are returned unconfirmed. If it
        ends earlier, raises BudgetUsed.
        """
        verdicts: list[Verdict] = []

        def kept(ask: Ask) -> Verdict:
            verdicts.append(search(ask))
            return verdicts[-1]

        try:
            return certain_verdict(self, failure, base, kept, wanted)
        except BudgetUsed:
            if not verdicts or not verdicts[-1].faults:
                raise
            suspected = replace(verdicts[-1], confirmed=False)
            return CertainVerdict(suspected, Rate(1, 1), confidence=0.0)

    def searched(
        self,
        search: Callable[[Ask], Result],
        rehearsal: Callable[[Ask], object] | None = None,
        ask: Ask | None = None,
        then: Sequence[Question[CandidateType]] = (),
    ) -> Result:
        """Return the result of a search about the candidate; see `rehearsal.search_ahead`.

        A search without side effects is its own rehearsal. `ask`, if given, is asked instead of
        this oracle, and passes its questions on to it. `then` are the questions that follow the
        search; idle processes start on them.
        """
        again, real = rehearsal or search, ask or self.ask

        def about(any_ask: Callable[[Question[CandidateType]], Outcome]) -> Ask:
            return lambda toggles, purpose: any_ask(Question(self.candidate, toggles, purpose))

        try:
            return search_ahead(
                lambda question: real(question.toggles, question.purpose),
                self.oracle,
                lambda any_ask: search(about(any_ask)),
                lambda any_ask: (again(about(any_ask)), [any_ask(question) for question in then]),
            )
        finally:
            self.oracle.ask_ahead(then)
