"""The canonical form of sums that hold quotients and remainders: `(e // d) * d + e % d` is e.

Remainders are written as `e - d * (e // d)` and terms are collected. Then what is left is written
with remainders again, first where that saves terms, then where it costs none: a sum is to show its
remainders, whose bounds are known. This second step sees the collected terms alone. So sums that
are equal by the identity, however it hides in them, get the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, Self, TypeVar

from tcdebug.compiler.ir.polynomial import (
    Keyed,
    Monomial,
    Polynomial,
    add,
    monomial_product,
    monomial_quotient,
    multiply,
)


class Divisible(Keyed, Protocol):
    """A factor that may be a quotient or a remainder."""

    @property
    def expanded(self) -> Mapping[tuple[Self, ...], int] | None:
        """A remainder as terms without remainders; None for all else."""

    @property
    def rank(self) -> tuple[int, int, str] | None:
        """Quotients are looked at in the order of their ranks; None for all else."""

    def remainders(self, beside: Iterable[Self]) -> Iterator[Self]:
        """The remainders e % d whose e // d is this quotient, given the quotients beside it."""


F = TypeVar("F", bound=Divisible)


def expand(terms: Polynomial[F]) -> Polynomial[F]:
    """The terms with every remainder written out."""
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
    """The canonical form of terms."""
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
    """Terms as a sum of others and multiples of a remainder.

    `most` is by how many the number of terms may grow.
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
    """What the remainder may be multiplied with, going by the terms that hold its quotient."""
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
    """How often `multiple` may be taken out of the terms so that one of them goes away.

    The best choice is the least: it leaves the fewest terms, and takes what is divided away rather
    than the quotient, as `i * 100 + j` is an address with i = k // 64 and j = k % 64.
    """
    for monomial, c in multiple.items():
        times, left = divmod(terms.get(monomial, 0), c)
        if times and not left:
            remaining = len(add(terms, multiple, -times))
            yield remaining, quotient in monomial, abs(times), times
