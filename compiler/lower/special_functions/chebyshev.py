"""Chebyshev series in the expression of an element.

Clenshaw, "A note on the summation of Chebyshev series" (1955).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.compiler.lower.special_functions.formula import Term


def series(row: Sequence[float], x: Term, low: float, high: float) -> Term:
    """The value of a series fitted from `low` to `high`, as exact as the dtype of x."""
    terms = _told_apart(row, x.dtype)
    t = (x - (low + high) / 2) * (2 / (high - low))
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


def _told_apart(row: Sequence[float], dtype: torch.dtype) -> Sequence[float]:
    """The coefficients but for those at the end that change nothing."""
    smallest = max(map(abs, row)) * torch.finfo(dtype).eps / 32
    last = max(k for k, c in enumerate(row) if abs(c) > smallest)
    return row[: max(last, 1) + 1]
