"""Arithmetic on integer polynomials, which are dictionaries from monomials to coefficients.

The factors of a monomial are integers of unknown value. Their class, `Factor`, is extended by
`index.Atom`. `Sum` makes a value of a polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from math import gcd
from typing import Any, Generic, TypeVar

F = TypeVar("F", bound="Factor[Any]")
Monomial = tuple[F, ...]
"""A product of factors, sorted by key. The empty product is 1."""
Polynomial = Mapping[tuple[F, ...], int]
Bounds = tuple[Polynomial[F] | None, Polynomial[F] | None]


class Factor(Generic[F]):
    """An integer of unknown value. F is the class of the factors of the same polynomials.

    `key` describes the factor completely. Factors with equal classes and keys are equal.
    """

    __slots__ = ("_hash", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Factor) and type(self) is type(other) and self.key == other.key

    @property
    def expanded(self) -> Polynomial[F] | None:
        """A remainder written as terms without remainders; None for other factors."""
        return None

    @property
    def rank(self) -> tuple[int, int, str] | None:
        """The sort key by which `recombination` orders quotients; None for other factors."""
        return None

    def remainders(self, beside: Iterable[F]) -> Iterator[F]:
        """The remainders e % d for which e // d is this quotient, given the quotients beside it."""
        return iter(())

    def bounds(self) -> Bounds[F]:
        """Inclusive bounds without axes; None where a bound is unknown."""
        return None, None

    def at_least(self) -> int | None:
        """An integer that this factor never falls below, for any sizes; None if unknown."""
        return None


def _key(factor: Factor[Any]) -> str:
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


def digits(
    terms: Polynomial[F], denominator: int
) -> Iterator[tuple[int, dict[Monomial[F], int], Polynomial[F]]]:
    """Yield the ways to write terms as `unit * high + low`, for divisors of the denominator.

    The largest unit comes first, and `low` has the terms that the unit does not divide.
    """
    units = {gcd(c, denominator) for c in terms.values()}
    for unit in sorted(units - {1}, reverse=True) if denominator else ():
        high = {m: c for m, c in terms.items() if c % unit == 0}
        yield unit, scale_down(high, unit), add(terms, high, -1)


def shared_factor(*polynomials: Polynomial[F]) -> int:
    """Return the greatest integer that divides every coefficient."""
    return gcd(*(c for terms in polynomials for c in terms.values()))


def scale_down(terms: Polynomial[F], factor: int) -> dict[Monomial[F], int]:
    """Return terms / factor, for an integer that divides every coefficient."""
    return {m: c // factor for m, c in terms.items()}


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


class Sum(Generic[F]):
    """A polynomial as a value: immutable, hashable, and printed as Python.

    A constant sum equals its integer and has the same hash.
    """

    __slots__ = ("__dict__", "_hash", "terms")

    def __init__(self, terms: Polynomial[F]) -> None:
        self.terms = without_zeros(terms)
        constant = self.constant
        self._hash = hash(frozenset(self.terms.items()) if constant is None else constant)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return self is other or (isinstance(other, Sum) and self.terms == other.terms)

    @cached_property
    def constant(self) -> int | None:
        """The value of a constant sum, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @cached_property
    def single(self) -> F | None:
        """The factor, if the sum is one factor and nothing else."""
        if len(self.terms) == 1:
            monomial, c = next(iter(self.terms.items()))
            if c == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    @cached_property
    def ordered(self) -> tuple[tuple[Monomial[F], int], ...]:
        """The terms in an order that does not depend on how the sum was built."""
        return tuple(ordered(self.terms.items()))

    @cached_property
    def key(self) -> str:
        """A text that describes the sum completely: two sums are equal iff their keys are."""
        return sum_text(self.ordered, _key, str)

    @cached_property
    def _text(self) -> str:
        return sum_text(self.ordered, repr, str)

    def __repr__(self) -> str:
        return self._text
