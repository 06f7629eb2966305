"""Evaluates Chebyshev series in the expression of an element.

Clenshaw, "A note on the summation of Chebyshev series" (1955).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.lower.special_functions.formula import Term


@dataclass(frozen=True)
class Series:
    """A function on an interval, given by the coefficients of its Chebyshev series."""

    low: float
    high: float
    coefficients: tuple[float, ...]

    def at(self, x: Term) -> Term:
        """Return the value at x, to the precision of the dtype of x."""
        terms = _significant(self.coefficients, x.dtype)
        t = (x - (self.low + self.high) / 2) * (2 / (self.high - self.low))
        twice = t + t
        ahead = next_ahead = None
        for coefficient in reversed(terms[1:]):
            value = twice * 0.0 + coefficient if ahead is None else twice * ahead + coefficient
            if next_ahead is not None:
                value = value - next_ahead
            ahead, next_ahead = value, ahead
        assert ahead is not None
        total = t * ahead + terms[0]
        return total if next_ahead is None else total - next_ahead


@dataclass(frozen=True)
class Zero:
    """A zero of a function, as the sum of two doubles."""

    value: float
    rest: float

    def factor(self, x: Term) -> Term:
        """x^2 - zero^2, accurate near the zero, where x minus the rounded zero is exact."""
        held = torch.tensor(self.value, dtype=x.dtype).item()
        return ((x - held) - (self.value - held + self.rest)) * (x + self.value)


def _significant(row: Sequence[float], dtype: torch.dtype) -> Sequence[float]:
    """Return the coefficients without those at the end that are too small to matter."""
    smallest = max(map(abs, row)) * torch.finfo(dtype).eps / 32
    last = max(k for k, c in enumerate(row) if abs(c) > smallest)
    return row[: max(last, 1) + 1]
