"""Arithmetic on integer polynomials, which are dictionaries from monomials to coefficients.

Any object with a key can be a factor of a monomial; equal factors have equal keys. `index` builds
its indices from these polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar


class Keyed(Protocol):
    """A factor of a monomial, ordered by its key."""

    @property
    def key(self) -> str:
        """A text that identifies the factor."""


F = TypeVar("F", bound=Keyed)
Monomial = tuple[F, ...]
"""A product of factors, sorted by key. The empty product is 1."""
Polynomial = Mapping[tuple[F, ...], int]


def _key(factor: Keyed) -> str:
    return factor.key


def monomial_product(left: Monomial[F], right: Monomial[F]) -> Monomial[F]:
    """Return the product of two monomials."""
    if not left:
        return right
    if not right:
        return left
    return tuple(sorted(left + right, key=_key))


def monomial_quotient(monomial: Monomial[F], divisor: Monomial[F]) -> Monomial[F] | None:
    """`monomial / divisor`, or None if the division is not exact."""
    rest = list(monomial)
    for factor in divisor:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def without_zeros(terms: Polynomial[F]) -> dict[Monomial[F], int]:
    """Return the terms whose coefficients are not zero."""
    return {m: c for m, c in terms.items() if c}


def add(left: Polynomial[F], right: Polynomial[F], scale: int = 1) -> dict[Monomial[F], int]:
    """left + scale * right."""
    total = dict(left)
    for monomial, c in right.items():
        total[monomial] = total.get(monomial, 0) + scale * c
    return without_zeros(total)


def multiply(left: Polynomial[F], right: Polynomial[F]) -> dict[Monomial[F], int]:
    """left * right."""
    total: dict[Monomial[F], int] = {}
    for m1, c1 in left.items():
        for m2, c2 in right.items():
            monomial = monomial_product(m1, m2)
            total[monomial] = total.get(monomial, 0) + c1 * c2
    return without_zeros(total)


def ordered(terms: Iterable[tuple[Monomial[F], int]]) -> list[tuple[Monomial[F], int]]:
    """Return the terms by falling degree, then by keys.

    The order depends only on the polynomial.
    """
    return sorted(terms, key=lambda t: (-len(t[0]), tuple(f.key for f in t[0])))


def long_division(
    numerator: Polynomial[F], denominator: Polynomial[F]
) -> tuple[dict[Monomial[F], int], dict[Monomial[F], int]]:
    """Quotient q and rest r with numerator = q * denominator + r.

    Divides by the leading term of the denominator while it divides a term exactly.
    """
    if not any(denominator):
        return _divide_by_term(numerator, (), denominator.get((), 0))
    lead, lead_coefficient = ordered(denominator.items())[0]
    if len(denominator) == 1:
        return _divide_by_term(numerator, lead, lead_coefficient)
    quotient: dict[Monomial[F], int] = {}
    rest = dict(numerator)
    for _ in range(len(numerator) + 4):
        for monomial, c in ordered(rest.items()):
            remaining = monomial_quotient(monomial, lead)
            if remaining is not None and c % lead_coefficient == 0:
                step = {remaining: c // lead_coefficient}
                quotient = add(quotient, step)
                rest = add(rest, multiply(step, denominator), -1)
                break
        else:
            break
    return quotient, rest


def _divide_by_term(
    numerator: Polynomial[F], lead: Monomial[F], coefficient: int
) -> tuple[dict[Monomial[F], int], dict[Monomial[F], int]]:
    quotient: dict[Monomial[F], int] = {}
    rest: dict[Monomial[F], int] = {}
    for monomial, c in numerator.items():
        remaining = monomial_quotient(monomial, lead)
        if remaining is None:
            rest[monomial] = c
            continue
        q, r = divmod(c, coefficient)
        if monomial and r:
            # 5*i is not split into 4*i + i: that would turn 5*i // 4 into i + i // 4
            rest[monomial] = c
            continue
        if q:
            quotient[remaining] = q
        if r:
            rest[monomial] = r
    return quotient, rest


def sum_text(
    terms: Iterable[tuple[Monomial[F], int]],
    factor_text: Callable[[F], str],
    literal_text: Callable[[int], str],
) -> str:
    """Return a sum of terms as text, in the given order; the text of 0 if there are none."""
    texts = []
    for monomial, c in terms:
        factors = [factor_text(factor) for factor in monomial]
        if c != 1 or not factors:
            factors.append(literal_text(c))
        texts.append("*".join(factors))
    return " + ".join(texts).replace("+ -", "- ") or literal_text(0)
