"""Index arithmetic: sizes, strides and loop indices as integer polynomials in canonical form.

An `Index` is a sum of terms. A term is an integer times a product of atoms. Atoms are loop axes,
size symbols, and what a polynomial cannot express: floor division, remainder, extrema, and an
index that is read from memory (`expr.Indirect`). An atom knows its bounds and how to substitute
into itself. Arithmetic on terms is in `polynomial`, their canonical form in `recombination`, their
bounds in `bounds`.

Fusion asks whether two addresses are the same. In canonical form this is an equality test: like
terms are collected, divisions are carried out as far as they are exact, and sums such as
`(k // 64) * 64 + k % 64` are simplified to k.

torch gives sizes as sympy expressions. docs/decisions/0003-own-index-arithmetic.md gives the
measurements that speak against computing in sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from math import prod
from typing import ClassVar, Union

from tcdebug.compiler.ir.arithmetic.bounds import bounds, never_negative
from tcdebug.compiler.ir.arithmetic.polynomial import (
    Bounds,
    Factor,
    Monomial,
    Polynomial,
    Sum,
    add,
    digits,
    long_division,
    multiply,
    scale_down,
    shared_factor,
)
from tcdebug.compiler.ir.arithmetic.recombination import expand, recombine


class Atom(Factor["Atom"]):
    """An integer from which indices are built.

    `key` describes the atom completely, including sizes and bounds.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return self.text(repr)

    def text(self, index_text: Callable[[Index], str]) -> str:
        """This atom as an operand in Python, with `index_text` of the indices inside it."""
        return self.key

    def children(self) -> tuple[Index, ...]:
        """Return the indices that this atom is computed from."""
        return ()

    @property
    def axes(self) -> frozenset[Axis]:
        """The loop variables in this atom that are not in its `children`."""
        return frozenset()

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The size symbols in this atom that are not in its `children`."""
        return frozenset()

    def bounds(self) -> Bounds[Atom]:
        return {(self,): 1}, {(self,): 1}

    def at_least(self) -> int | None:
        return 0

    def mentions(self, atoms: Container[Atom]) -> bool:
        """True if substituting for these atoms may change this one."""
        if self in atoms:
            return True
        return any(a.mentions(atoms) for child in self.children() for a in child.direct_atoms)

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        """This atom after the atoms inside it are replaced. It is not replaced itself."""
        return to_index(self)


class Symbol(Atom):
    """An integer that becomes known when the graph runs. `lower` is a lower bound, if known."""

    __slots__ = ("lower", "name")

    def __init__(self, name: str, lower: int | None = 0) -> None:
        super().__init__(name if lower is None else f"{name}>={lower}")
        self.name = name
        self.lower = lower

    def text(self, index_text: Callable[[Index], str]) -> str:
        return self.name

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset({self})

    def at_least(self) -> int | None:
        return self.lower


class Axis(Atom):
    """A loop variable: 0 <= axis < size."""

    __slots__ = ("name", "size")

    def __init__(self, name: str, size: Index) -> None:
        super().__init__(f"{name}<{size.key}")
        self.name = name
        self.size = size

    def text(self, index_text: Callable[[Index], str]) -> str:
        return self.name

    @property
    def axes(self) -> frozenset[Axis]:
        return frozenset({self})

    def bounds(self) -> Bounds[Atom]:
        return {}, (self.size - 1).terms


class Division(Atom):
    """A part of a division by a positive denominator: `Quotient` or `Remainder`."""

    __slots__ = ("denominator", "numerator")
    sign: ClassVar[str]

    def __init__(self, numerator: Index, denominator: Index) -> None:
        super().__init__(f"({numerator.key}){self.sign}({denominator.key})")
        self.numerator = numerator
        self.denominator = denominator

    def text(self, index_text: Callable[[Index], str]) -> str:
        return f"(({index_text(self.numerator)}) {self.sign} ({index_text(self.denominator)}))"

    def children(self) -> tuple[Index, ...]:
        return (self.numerator, self.denominator)


class Quotient(Division):
    """floor(numerator / denominator) for a positive denominator."""

    __slots__ = ()
    sign = "//"

    @property
    def rank(self) -> tuple[int, int, str] | None:
        # an outer division comes before those inside it, and small denominators before large ones
        bottom = self.denominator
        return -len(self.numerator.key), bottom.constant or 0, f"{bottom.key}, {self.numerator.key}"

    def remainders(self, beside: Iterable[Atom]) -> Iterator[Atom]:
        yield Remainder(self.numerator, self.denominator)
        for inner in beside:  # x // (a * b) is (x // a) // b
            if isinstance(inner, Quotient) and inner.numerator == self.numerator:
                outer = exact_quotient(self.denominator, inner.denominator)
                if outer is not None and outer != 1:
                    yield Remainder(to_index(inner), outer)

    def bounds(self) -> Bounds[Atom]:
        low, high = self.numerator.bounds
        if low is None or not is_nonnegative(low):
            return None, None
        return {}, None if high is None else (high // self.denominator).terms

    def at_least(self) -> int | None:
        return 0 if is_nonnegative(self.numerator) else None

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return self.numerator.substitute(values) // self.denominator.substitute(values)


class Remainder(Division):
    """numerator - denominator * floor(numerator / denominator) for a positive denominator."""

    sign = "%"

    @cached_property
    def expanded(self) -> Terms:
        whole = _quotient_atom(self.numerator, self.denominator).expanded
        return add(self.numerator.expanded, multiply(self.denominator.expanded, whole), -1)

    def bounds(self) -> Bounds[Atom]:
        return {}, (self.denominator - 1).terms

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return self.numerator.substitute(values) % self.denominator.substitute(values)


Terms = Polynomial[Atom]
IndexLike = Union["Index", Atom, int]


class Index(Sum[Atom]):
    """An integer polynomial in canonical form.

    `Index(terms)` takes terms in canonical form; `collected` brings terms into canonical form.
    """

    __slots__ = ()

    @cached_property
    def expanded(self) -> Terms:
        """The terms with every remainder replaced by a difference."""
        return expand(self.terms)

    def __add__(self, other: IndexLike) -> Index:
        other = to_index(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        return collected(add(self.terms, other.terms))

    __radd__ = __add__

    def __neg__(self) -> Index:
        return collected({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: IndexLike) -> Index:
        return self + (-to_index(other))

    def __rsub__(self, other: IndexLike) -> Index:
        return to_index(other) + (-self)

    def __mul__(self, other: IndexLike) -> Index:
        other = to_index(other)
        if other.constant == 1:
            return self
        if self.constant == 1:
            return other
        return collected(multiply(self.terms, other.terms))

    __rmul__ = __mul__

    def __floordiv__(self, other: IndexLike) -> Index:
        return divide(self, to_index(other))[0]

    def __mod__(self, other: IndexLike) -> Index:
        return divide(self, to_index(other))[1]

    @cached_property
    def direct_atoms(self) -> tuple[Atom, ...]:
        """The atoms of the terms, in a fixed order, without those inside other atoms."""
        seen: dict[Atom, None] = {}
        for monomial, _ in self.ordered:
            for atom in monomial:
                seen[atom] = None
        return tuple(seen)

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        """All atoms, including those inside quotients, remainders and extrema."""
        found: set[Atom] = set()
        for atom in self.direct_atoms:
            found.add(atom)
            for child in atom.children():
                found |= child.atoms
        return frozenset(found)

    @cached_property
    def axes(self) -> frozenset[Axis]:
        """The loop variables that this index depends on, also through indirect indices."""
        return frozenset().union(*(atom.axes for atom in self.atoms))

    @cached_property
    def symbols(self) -> frozenset[Symbol]:
        """The size symbols that this index depends on."""
        return frozenset().union(*(atom.symbols for atom in self.atoms))

    def coefficient(self, axis: Axis) -> Index | None:
        """c if the index is c * axis + (a term without the axis), else None."""
        result: dict[Monomial[Atom], int] = {}
        for monomial, c in self.terms.items():
            count = monomial.count(axis)
            if count > 1:
                return None
            rest = tuple(a for a in monomial if a != axis)
            if any(axis in Index({(a,): 1}).axes for a in rest):
                return None
            if count:
                result[rest] = result.get(rest, 0) + c
        return collected(result)

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        """Return the index with atoms replaced, simplified again."""
        if not values or not self.terms:
            return self
        if not any(atom.mentions(values) for atom in self.direct_atoms):
            return self
        total = ZERO
        for monomial, c in self.terms.items():
            term = Index({(): c})
            for atom in monomial:
                term = term * (values[atom] if atom in values else atom.substitute(values))
            total = total + term
        return total

    @cached_property
    def bounds(self) -> tuple[Index | None, Index | None]:
        """Inclusive bounds without axes; None where a bound is unknown."""
        low, high = bounds(self.terms)
        return None if low is None else collected(low), None if high is None else collected(high)


ZERO = Index({})
ONE = Index({(): 1})


def to_index(value: IndexLike) -> Index:
    """Return an int or an atom as an `Index`."""
    if isinstance(value, Index):
        return value
    if isinstance(value, Atom):
        return Index({(value,): 1})
    return Index({(): int(value)})


def product(values: Iterable[Index]) -> Index:
    """Return the product of indices; 1 if there are none."""
    return prod(values, start=ONE)


def is_nonnegative(value: Index) -> bool:
    """True if the value is known to be >= 0 for all sizes."""
    if value.constant is not None:
        return value.constant >= 0
    if value.axes:
        low = value.bounds[0]
        return low is not None and not low.axes and is_nonnegative(low)
    return never_negative(value.terms)


def within(value: Index, size: Index) -> bool:
    """True if 0 <= value < size is known for all values of axes and symbols."""
    low, high = value.bounds
    if low is None or high is None:
        return False
    return is_nonnegative(low) and is_nonnegative(size - high - 1)


def exact_quotient(numerator: Index, denominator: Index) -> Index | None:
    """numerator / denominator if the division of polynomials is exact, else None."""
    if denominator.constant == 0:
        return None
    quotient, rest = long_division(numerator.terms, denominator.terms)
    return collected(quotient) if not rest else None


def divide(numerator: Index, denominator: Index) -> tuple[Index, Index]:
    """floor(numerator / denominator) and the remainder, for a positive denominator."""
    if denominator.constant == 1:
        return numerator, ZERO
    if denominator.constant == 0:
        return ZERO, ZERO  # the loop is empty, so the value is never used
    if numerator.constant is not None and denominator.constant is not None:
        q, r = divmod(numerator.constant, denominator.constant)
        return to_index(q), to_index(r)
    for terms in (numerator.terms, numerator.expanded):  # (x % 64) // 16 is (x // 16) % 4
        quotient, rest = map(collected, long_division(terms, denominator.terms))
        if not rest.terms or within(rest, denominator):
            return quotient, rest
    shared = shared_factor(rest.terms, denominator.terms)
    if shared != 1:
        small, smaller = (collected(scale_down(i.terms, shared)) for i in (rest, denominator))
        inner, left = divide(small, smaller)
        return quotient + inner, left * shared
    for unit, high, others in digits(rest.terms, denominator.constant or 0):
        if within(low := collected(others), to_index(unit)):  # it does not change the quotient
            inner, left = divide(collected(high), denominator // unit)
            return quotient + inner, left * unit + low
    remainder = Remainder(rest, denominator)
    return quotient + _quotient_atom(rest, denominator), collected({(remainder,): 1})


def _quotient_atom(numerator: Index, denominator: Index) -> Index:
    inner = numerator.single
    if isinstance(inner, Quotient):  # (x // a) // b
        return inner.numerator // (inner.denominator * denominator)
    return to_index(Quotient(numerator, denominator))


def collected(terms: Terms) -> Index:
    """Return the sum of terms, in canonical form."""
    if not any(isinstance(atom, Division) for monomial in terms for atom in monomial):
        return Index(terms)
    return _recombined(frozenset(terms.items()))


@lru_cache(maxsize=8192)
def _recombined(terms: frozenset[tuple[Monomial[Atom], int]]) -> Index:
    return Index(recombine(dict(terms)))
