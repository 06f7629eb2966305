"""An oracle asked about one case only: what a bisection asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.oracle import Oracle, Question
from tcdebug.minifier.search.rehearsal import searched
from tcdebug.minifier.search.repeats import Rate

Found = TypeVar("Found")


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

    def searched(
        self,
        search: Callable[[Ask], Found],
        rehearsal: Callable[[Ask], object] | None = None,
        ask: Ask | None = None,
    ) -> Found:
        """What a search finds that asks about the case, see `ahead.searched`.

        A search that changes and tells nothing is its own rehearsal. `ask` is asked in place of
        this oracle, and asks it.
        """
        again, real = rehearsal or search, ask or self.ask

        def about(any_ask: Callable[[Question], Outcome]) -> Ask:
            return lambda toggles, purpose: any_ask(Question(self.case, toggles, purpose))

        try:
            return searched(
                lambda question: real(question.toggles, question.purpose),
                self.oracle,
                lambda any_ask: search(about(any_ask)),
                lambda any_ask: again(about(any_ask)),
            )
        finally:
            self.oracle.ask_ahead(())
