"""The budget of a search, and what the search has used of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


class BudgetUsed(Exception):
    """The seconds or reruns that the user allowed are used up."""


CONFIRMING = 0.2
"""The part of the budget that is kept for the whole graph, its stages and the runs of the repro."""


@dataclass(frozen=True)
class Budget:
    """The limits of a whole search: wall seconds, and runs of candidates."""

    seconds: float = 3600.0
    reruns: int = 2000


@dataclass
class Spending:
    """What a search has used of its budget, and how slow its runs are.

    The oracles of one search share it.
    """

    budget: Budget
    reruns: int = 0
    reserved: float = 0.0
    """Wall seconds that are kept for later steps."""
    longest_silence: float = 0.0
    """The longest time for which a run that ended showed no sign of progress, in seconds."""
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall seconds since the search began."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """Wall seconds that are left of the budget; negative once they are used up."""
        return self.budget.seconds - self.seconds - self.reserved

    @property
    def to_confirm(self) -> float:
        """Wall seconds without which a culprit may be named, but not confirmed by its repro."""
        return CONFIRMING * self.budget.seconds

    @property
    def affordable(self) -> bool:
        """Whether another run may start."""
        return self.reruns < self.budget.reruns and self.seconds_left > 0

    @contextlib.contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Allow this block `seconds`, but no more than half of what is left."""
        left = self.seconds_left
        with self.reserving(max(left - seconds, left / 2, self.to_confirm)):
            yield

    def left(self, *, named: bool) -> float:
        """Return the wall seconds that are left to run a repro.

        Once a unit is named, nothing is kept for later steps: they are needed only if none is.
        """
        if named:
            self.reserved = 0.0
        return self.seconds_left

    @contextlib.contextmanager
    def reserving(self, seconds: float) -> Iterator[None]:
        """Keep `seconds` for the steps after this block. Without them the budget ends earlier."""
        self.reserved += seconds
        try:
            yield
        finally:
            self.reserved -= seconds
