"""Runs a reducer and starts on its likely next questions in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tcdebug.minifier.search.rehearsal import Ahead, Answer, Question, search_ahead

Reduced = TypeVar("Reduced")
CONFIRMING = "the smallest version of this step"
"""The purpose of a run that confirms a step."""
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

    def mark(self) -> None:
        """Remember this state."""
        ...

    def undo(self) -> None:
        """Return to the state that was remembered."""
        ...


def reduce_ahead(
    reducer: Reducing[Reduced],
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    interesting: Callable[[Callable[[Question], Answer]], Interesting[Reduced]],
    strictly: Callable[[Callable[[Question], Answer]], Interesting[Reduced]] | None = None,
) -> None:
    """Run a reducer to its end, and start on its likely next questions in advance.

    `interesting` makes the reducer's predicate from a function that answers questions. See
    `rehearsal.search_ahead`. If `strictly` is given, it must hold after each step too. A step after
    which it does not is repeated with it in place of `interesting`.
    """

    def step(
        predicate: Callable[[Callable[[Question], Answer]], Interesting[Reduced]],
        here: Reducing[Reduced],
    ) -> bool:
        return search_ahead(
            ask,
            ahead,
            lambda ask: reducer.step(predicate(ask)),
            lambda ask: here.rehearsal().run(predicate(ask)),
        )

    try:
        going = True
        while going:
            reducer.forget()
            reducer.mark()
            here = reducer.rehearsal()
            going = step(interesting, here)
            if strictly is None or reducer.best is here.best:
                continue
            if not strictly(ask)(reducer.best, CONFIRMING):
                reducer.undo()
                going = step(strictly, here)
    finally:
        ahead.ask_ahead(())
