"""Bounds and signs of integer polynomials, from the bounds of their factors."""

from __future__ import annotations

from typing import Any, TypeVar

from tcdebug.compiler.ir.arithmetic.polynomial import (
    Bounds,
    Factor,
    Monomial,
    Polynomial,
    add,
    multiply,
)
from tcdebug.compiler.ir.arithmetic.recombination import expand, recombine

F = TypeVar("F", bound=Factor[Any])


def bounds(terms: Polynomial[F]) -> Bounds[F]:
    """Return inclusive bounds of a sum, without axes; None where a bound is unknown."""
    low, high = _sum_bounds(terms)
    expanded = expand(terms)
    if expanded is terms:
        return low, high
    other_low, other_high = _sum_bounds(expanded)  # may be tighter
    if low is None or (other_low is not None and _is_at_least(other_low, low)):
        low = other_low
    if high is None or (other_high is not None and _is_at_least(high, other_high)):
        high = other_high
    return low, high


def _is_at_least(left: Polynomial[F], right: Polynomial[F]) -> bool:
    return never_negative(recombine(add(left, right, -1)))


def _sum_bounds(terms: Polynomial[F]) -> Bounds[F]:
    low: Polynomial[F] | None = {}
    high: Polynomial[F] | None = {}
    for monomial, c in terms.items():
        least, most = _monomial_bounds(monomial)
        if c < 0:
            least, most = most, least
        low = None if low is None or least is None else add(low, least, c)
        high = None if high is None or most is None else add(high, most, c)
    return low, high


def _monomial_bounds(monomial: Monomial[F]) -> Bounds[F]:
    low: Polynomial[F] | None = {(): 1}
    high: Polynomial[F] | None = {(): 1}
    for factor in monomial:
        least, most = factor.bounds()
        # the product of bounds is a bound only if no factor is negative
        if len(monomial) > 1 and (least is None or not never_negative(least)):
            return None, None
        low = None if low is None or least is None else multiply(low, least)
        high = None if high is None or most is None else multiply(high, most)
    return low, high


def never_negative(terms: Polynomial[F]) -> bool:
    """True if a sum is known to be >= 0 for all values of its factors."""
    if _has_no_negative_term(terms):
        return True
    expanded = expand(terms)
    return expanded is not terms and _has_no_negative_term(expanded)


def _has_no_negative_term(terms: Polynomial[F]) -> bool:
    shifted: Polynomial[F] = {}
    for monomial, c in terms.items():
        term: Polynomial[F] = {(): c}
        for factor in monomial:
            least = factor.at_least()
            if least is None:
                return False
            # substitutes least + factor for the factor, which is then >= 0
            term = multiply(term, {(factor,): 1, (): least})
        shifted = add(shifted, term)
    return all(c >= 0 for c in shifted.values())
