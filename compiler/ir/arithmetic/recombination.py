"""The canonical form of sums with quotients and remainders: `(e // d) * d + e % d` is e.

First, remainders are replaced by `e - d * (e // d)`, and terms are collected. Then remainders are
introduced again, first where that reduces the number of terms, then where it leaves the number the
same, because the bounds of a remainder are known. The second step sees only the collected terms,
so sums that are equal by the identity get the same form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from tcdebug.compiler.ir.arithmetic.polynomial import (
    Factor,
    Monomial,
    Polynomial,
    add,
    monomial_product,
    monomial_quotient,
    multiply,
)

F = TypeVar("F", bound=Factor[Any])


def expand(terms: Polynomial[F]) -> Polynomial[F]:
    """Return the terms with every remainder replaced by its `expanded` terms."""
    if not any(factor.expanded for monomial in terms for factor in monomial):
        return terms
    total: dict[Monomial[F], int] = {}
    for monomial, c in terms.items():
        term: Polynomial[F] = {(): c}
        for factor in monomial:
            one: Polynomial[F] = {(factor,): 1}
            term = multiply(term, factor.expanded or one)
        total = add(total, term)
    return total


def recombine(terms: Polynomial[F]) -> dict[Monomial[F], int]:
    """Return the canonical form of terms."""
    rest, remainders = expand(terms), dict[Monomial[F], int]()
    for most in (-1, 0):
        seen: set[F] = set()
        while left := [q for q in _quotients(rest) if q not in seen]:
            quotient = left[0]
            seen.add(quotient)
            for remainder in quotient.remainders(_quotients(rest)):
                rest, found = _write_with(remainder, rest, quotient, most)
                remainders = add(remainders, found)
    return add(rest, remainders)


def _quotients(terms: Polynomial[F]) -> list[F]:
    ranks = {f: f.rank for monomial in terms for f in monomial if f.rank is not None}
    return sorted(ranks, key=lambda factor: ranks[factor])


def _write_with(
    remainder: F, terms: Polynomial[F], quotient: F, most: int
) -> tuple[Polynomial[F], Polynomial[F]]:
    """Split terms into other terms and multiples of a remainder.

    The number of terms may grow by at most `most`.
    """
    expanded = remainder.expanded or {}
    found: dict[Monomial[F], int] = {}
    for multiplier in _multipliers(expanded, terms, quotient):
        multiple = multiply(expanded, {multiplier: 1})
        best = min(_choices(multiple, terms, quotient), default=None)
        if best is None or best[0] + 1 - len(terms) > most:
            continue
        times = best[-1]
        terms = add(terms, multiple, -times)
        found[monomial_product(multiplier, (remainder,))] = times
    return terms, found


def _multipliers(expanded: Polynomial[F], terms: Polynomial[F], quotient: F) -> list[Monomial[F]]:
    """The factors that the remainder may have, judging by the terms that contain its quotient."""
    leads = [monomial for monomial in expanded if quotient in monomial]
    candidates = (
        monomial_quotient(monomial, lead)
        for monomial in terms
        if quotient in monomial
        for lead in leads
    )
    found = {candidate for candidate in candidates if candidate is not None}
    return sorted(found, key=lambda monomial: tuple(f.key for f in monomial))


def _choices(
    multiple: Polynomial[F], terms: Polynomial[F], quotient: F
) -> Iterator[tuple[int, bool, int, int]]:
    """Yield how often `multiple` can be subtracted from the terms so that one of them vanishes.

    The smallest choice is the best: it leaves the fewest terms, and removes the dividend rather
    than the quotient. An address `i * 100 + j` with i = k // 64 and j = k % 64 so keeps its form.
    """
    for monomial, c in multiple.items():
        times, left = divmod(terms.get(monomial, 0), c)
        if times and not left:
            remaining = len(add(terms, multiple, -times))
            yield remaining, quotient in monomial, abs(times), times
