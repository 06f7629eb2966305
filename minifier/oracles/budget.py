"""What a search may use, and what it has used so far."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class BudgetUsed(Exception):
    """The seconds or reruns that the user allowed are used up."""


@dataclass(frozen=True)
class Budget:
    """What a whole search may use."""

    seconds: float = 3600.0
    reruns: int = 2000


@dataclass
class Spending:
    """What a search has used of its budget. Oracles of one search share it."""

    budget: Budget
    reruns: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall seconds since the search began."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """Wall seconds that are left of the budget; negative once they are used up."""
        return self.budget.seconds - self.seconds

    @property
    def affordable(self) -> bool:
        """Whether another run may begin."""
        return self.reruns < self.budget.reruns and self.seconds_left > 0
