"""Runs a reducer and starts on its likely next questions in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from tcdebug.minifier.search.rehearsal import Ahead, Answer, Question, search_ahead

Reduced_co = TypeVar("Reduced_co", covariant=True)
CONFIRMING = "the smallest version of this step"
"""The purpose of a run that confirms a step."""
CONFIRMED_TOGETHER = 4
"""As many steps that help are confirmed by one run."""
Interesting = Callable[[Reduced_co, str], bool]
"""Whether a candidate still shows the failure; the text is the name of the reduction."""


class Reducing(Protocol[Reduced_co]):
    """The search for a smaller candidate that is still interesting, one step at a time."""

    @property
    def best(self) -> Reduced_co:
        """The smallest candidate so far."""
        ...

    def step(self, interesting: Interesting[Reduced_co]) -> bool:
        """Apply the next reduction. Return False once no reduction changes anything."""
        ...

    def run(self, interesting: Interesting[Reduced_co]) -> Reduced_co:
        """Reduce until no reduction changes anything, and return the smallest candidate."""
        ...

    def rehearsal(self) -> Self:
        """Return a reducer in the same state that logs nothing and shares nothing mutable."""
        ...

    def forget(self) -> None:
        """Drop everything derived from candidates other than the best."""
        ...

    def return_to(self, earlier: Self) -> None:
        """Undo what was accepted since this rehearsal was made."""
        ...


def reduce_ahead(
    reducer: Reducing[Reduced_co],
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    interesting: Callable[[Callable[[Question], Answer]], Interesting[Reduced_co]],
    strictly: Callable[[Callable[[Question], Answer]], Interesting[Reduced_co]] | None = None,
) -> None:
    """Run a reducer to its end, and start on its likely next questions in advance.

    `interesting` makes the reducer's predicate from a function that answers questions. See
    `rehearsal.search_ahead`. If `strictly` is given, it must hold too after every few steps that
    help, and at the end. Steps after which it does not are repeated with it in place of
    `interesting`.
    """

    def step(
        predicate: Callable[[Callable[[Question], Answer]], Interesting[Reduced_co]],
        here: Reducing[Reduced_co],
    ) -> bool:
        return search_ahead(
            ask,
            ahead,
            lambda ask: reducer.step(predicate(ask)),
            lambda ask: here.rehearsal().run(predicate(ask)),
        )

    try:
        going, holds = True, reducer.rehearsal()
        steps = helped = 0
        while going:
            reducer.forget()
            here = reducer.rehearsal()
            going = step(interesting, here)
            steps, helped = steps + 1, helped + (reducer.best is not here.best)
            if strictly is None or not helped or (going and helped < CONFIRMED_TOGETHER):
                continue
            if not strictly(ask)(reducer.best, CONFIRMING):
                reducer.return_to(holds)
                going = all(step(strictly, reducer.rehearsal()) for _ in range(steps))
            holds = reducer.rehearsal()
            steps = helped = 0
    finally:
        ahead.ask_ahead(())
