"""A reducer at work, while what it may ask next is begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from tcdebug.minifier.search.rehearsal import Ahead, Answer, Question, searched

Reduced = TypeVar("Reduced")
Interesting = Callable[[Reduced, str], bool]
"""Whether a candidate still shows what is looked for; the text is the name of the reduction."""


class Reducing(Protocol[Reduced]):
    """The search for a smaller candidate that is still interesting, step by step."""

    @property
    def best(self) -> Reduced:
        """The smallest candidate so far."""
        ...

    def step(self, interesting: Interesting[Reduced]) -> bool:
        """Apply the next reduction; False where none changes anything any more."""
        ...

    def run(self, interesting: Interesting[Reduced]) -> Reduced:
        """Reduce until no reduction changes anything; the smallest candidate."""
        ...

    def rehearsal(self) -> Reducing[Reduced]:
        """A reducer in the same state, which logs nothing and changes nothing of this one."""
        ...

    def forget(self) -> None:
        """Drop what was derived from candidates other than the best."""
        ...


def reduce_ahead(
    reducer: Reducing[Reduced],
    ask: Callable[[Question], Answer],
    ahead: Ahead[Question, Answer],
    interesting: Callable[[Callable[[Question], Answer]], Interesting[Reduced]],
) -> None:
    """Run a reducer to its end, while what it may ask next is begun.

    `interesting` makes, of a way to ask, what the reducer wants to know. See `rehearsal.searched`.
    """

    def step() -> bool:
        reducer.forget()
        here = reducer.rehearsal()
        return searched(
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
