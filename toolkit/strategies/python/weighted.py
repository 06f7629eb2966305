"""A strategy that prefers some options.

Hypothesis' own choice among options is the number of one. This strategy makes the same choice with
other probabilities, so an example that Hypothesis has kept means the same with any weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
UNEVEN = 0.95
"""The probability with which the weights decide. Hypothesis requires less than 1."""


class WeightedOptions(SearchStrategy[T]):
    """Draws one of several options, with probabilities in proportion to positive weights."""

    def __init__(self, options: Sequence[T], weights: Sequence[float]) -> None:
        super().__init__()
        self._options = options
        part = UNEVEN / sum(weights)
        self._probabilities = {place: part * weight for place, weight in enumerate(weights)}

    def do_draw(self, data: ConjectureData) -> T:
        """Draw the place of an option. The first is the simplest."""
        last = len(self._options) - 1
        return self._options[data.draw_integer(0, last, weights=self._probabilities)]
