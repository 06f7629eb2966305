"""Runs a reducer and starts on its likely next questions in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tcdebug.minifier.search.rehearsal import Ahead, Answer, Question, search_ahead

Reduced = TypeVar("Reduced")
Interesting = Callable[[Reduced, str], bool]
"""Whether a candidate still shows the failure; the text is the name of the reduction."""


class Reducing(Protocol[Reduced]):
    """The search for a smaller candidate that is still interesting, one step at a time."""

    @property
    def best(self) -> Reduced:
        """The smallest candidate so far."""
        ...

    def step(self, interesting: Interesting[Reduced]) -> bool:
        """Apply the next reduction. Return False once no reduction changes anything."""
        ...

    def run(self, interesting: Interesting[Reduced]) -> Reduced:
        """Reduce until no reduction changes anything, and return the smallest candidate."""
        ...

    def rehearsal(self) -> Reducing[Reduced]:
        """Return a reducer in the same state that logs nothing and shares nothing mutable."""
        ...

    def forget(self) -> None:
        """Drop everything derived from candidates other than the best."""
        ...


def reduce_ahead(
    reducer: Reducing[Reduced],
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    interesting: Callable[[Callable[[Question], Answer]], Interesting[Reduced]],
) -> None:
    """Run a reducer to its end, and start on its likely next questions in advance.

    `interesting` makes the reducer's predicate from a function that answers questions. See
    `rehearsal.search_ahead`.
    """

    def step() -> bool:
        reducer.forget()
        here = reducer.rehearsal()
        return search_ahead(
            ask,
            ahead,
            lambda ask: reducer.step(interesting(ask)),
            lambda ask: here.rehearsal().run(interesting(ask)),
        )

    try:
        while step():
            pass
    finally:
        ahead.ask_ahead(())
