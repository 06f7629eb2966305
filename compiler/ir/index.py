"""Index arithmetic: sizes, strides and loop indices as integer polynomials in canonical form.

An `Index` is a sum of terms. A term is an integer times a product of atoms. Atoms are loop axes,
size symbols, and what a polynomial cannot express: floor division, remainder, extrema, and an
index that is read from memory (`expr.Indirect`). An atom knows its bounds and how to substitute
into itself.

Fusion asks whether two addresses are the same. In canonical form this is an equality test: like
terms are collected, divisions are carried out as far as they are exact, and `recombination`
simplifies sums such as `(k // 64) * 64 + k % 64` to k.

torch gives sizes as sympy expressions. docs/decisions/0003-own-index-arithmetic.md gives the
measurements that speak against computing in sympy.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from math import gcd
from typing import Union

from tcdebug.compiler.ir.polynomial import (
    Monomial,
    Polynomial,
    add,
    long_division,
    multiply,
    ordered,
    sum_text,
    without_zeros,
)
from tcdebug.compiler.ir.recombination import expand, recombine


class Atom:
    """An integer from which indices are built.

    `key` describes the atom completely, including sizes and bounds. Two atoms are equal if their
    classes and keys are equal.
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
        return isinstance(other, Atom) and type(self) is type(other) and self.key == other.key

    def __repr__(self) -> str:
        return self.text(repr)

    def text(self, index_text: Callable[[Index], str]) -> str:
        """This atom as an operand in Python, with `index_text` of the indices inside it."""
        return self.key

    def children(self) -> tuple[Index, ...]:
        """Return the indices that this atom is computed from."""
        return ()

    @property
    def expanded(self) -> Terms | None:
        """A remainder written as terms without remainders; None for other atoms."""
        return None

    @property
    def rank(self) -> tuple[int, int, str] | None:
        """The sort key by which `recombination` orders quotients; None for other atoms."""
        return None

    def remainders(self, beside: Iterable[Atom]) -> Iterator[Atom]:
        """The remainders e % d for which e // d is this quotient, given the quotients beside it."""
        return iter(())

    @property
    def axes(self) -> frozenset[Axis]:
        """The loop variables in this atom that are not in its `children`."""
        return frozenset()

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The size symbols in this atom that are not in its `children`."""
        return frozenset()

    def bounds(self) -> tuple[Index | None, Index | None]:
        """Inclusive bounds without axes; None where a bound is unknown."""
        return to_index(self), to_index(self)

    def never_negative(self) -> bool:
        """True if the value is known to be >= 0 for all sizes."""
        return True

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

    def never_negative(self) -> bool:
        return self.lower is not None and self.lower >= 0


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

    def bounds(self) -> tuple[Index | None, Index | None]:
        return ZERO, self.size - 1


class Quotient(Atom):
    """floor(numerator / denominator) for a positive denominator."""

    __slots__ = ("denominator", "numerator")

    def __init__(self, numerator: Index, denominator: Index) -> None:
        super().__init__(f"({numerator.key})//({denominator.key})")
        self.numerator = numerator
        self.denominator = denominator

    def text(self, index_text: Callable[[Index], str]) -> str:
        return f"(({index_text(self.numerator)}) // ({index_text(self.denominator)}))"

    def children(self) -> tuple[Index, ...]:
        return (self.numerator, self.denominator)

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

    def bounds(self) -> tuple[Index | None, Index | None]:
        low, high = self.numerator.bounds
        known = low is not None and is_nonnegative(low)
        top = None if high is None or not known else high // self.denominator
        return (ZERO if known else None), top

    def never_negative(self) -> bool:
        return is_nonnegative(self.numerator)

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return self.numerator.substitute(values) // self.denominator.substitute(values)


class Remainder(Atom):
    """numerator - denominator * floor(numerator / denominator) for a positive denominator."""

    __slots__ = ("_expanded", "denominator", "numerator")

    def __init__(self, numerator: Index, denominator: Index) -> None:
        super().__init__(f"({numerator.key})%({denominator.key})")
        self.numerator = numerator
        self.denominator = denominator
        self._expanded: Terms | None = None

    @property
    def expanded(self) -> Terms:
        if self._expanded is None:
            whole = _quotient_atom(self.numerator, self.denominator).expanded
            taken = multiply(self.denominator.expanded, whole)
            self._expanded = add(self.numerator.expanded, taken, -1)
        return self._expanded

    def text(self, index_text: Callable[[Index], str]) -> str:
        return f"(({index_text(self.numerator)}) % ({index_text(self.denominator)}))"

    def children(self) -> tuple[Index, ...]:
        return (self.numerator, self.denominator)

    def bounds(self) -> tuple[Index | None, Index | None]:
        return ZERO, self.denominator - 1

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return self.numerator.substitute(values) % self.denominator.substitute(values)


class Extremum(Atom):
    """max(a, b) or min(a, b)."""

    __slots__ = ("kind", "left", "right")

    def __init__(self, kind: str, left: Index, right: Index) -> None:
        super().__init__(f"{kind}({left.key}, {right.key})")
        self.kind = kind
        self.left = left
        self.right = right

    def text(self, index_text: Callable[[Index], str]) -> str:
        return f"{self.kind}({index_text(self.left)}, {index_text(self.right)})"

    def children(self) -> tuple[Index, ...]:
        return (self.left, self.right)

    def bounds(self) -> tuple[Index | None, Index | None]:
        if not self.left.axes and not self.right.axes:
            return to_index(self), to_index(self)
        left_low, left_high = self.left.bounds
        right_low, right_high = self.right.bounds
        lows = [x for x in (left_low, right_low) if x is not None]
        highs = [x for x in (left_high, right_high) if x is not None]
        if self.kind == "max":
            low = lows[0] if lows else None
            high = extremum("max", *highs) if len(highs) == 2 else None
        else:
            low = extremum("min", *lows) if len(lows) == 2 else None
            high = highs[0] if highs else None
        return low, high

    def never_negative(self) -> bool:
        left, right = is_nonnegative(self.left), is_nonnegative(self.right)
        return (left or right) if self.kind == "max" else (left and right)

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return extremum(self.kind, self.left.substitute(values), self.right.substitute(values))


Product = Monomial[Atom]
Terms = Polynomial[Atom]
IndexLike = Union["Index", Atom, int]


class Index:
    """An integer polynomial in canonical form. Immutable, hashable, and printed as Python.

    A constant index equals its integer and has the same hash. `Index(terms)` takes terms in
    canonical form; `collected` brings terms into canonical form.
    """

    __slots__ = ("__dict__", "_hash", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = without_zeros(terms)
        constant = self.constant
        known = frozenset(self.terms.items()) if constant is None else constant
        self._hash = hash(known)

    # -- identity ---------------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return self is other or (isinstance(other, Index) and self.terms == other.terms)

    @cached_property
    def constant(self) -> int | None:
        """The value of a constant index, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1:
            return self.terms.get(())
        return None

    @cached_property
    def ordered(self) -> tuple[tuple[Product, int], ...]:
        """The terms in an order that does not depend on how the polynomial was built."""
        return tuple(ordered(self.terms.items()))

    @cached_property
    def key(self) -> str:
        """A text that describes the index completely: two indices are equal iff their keys are."""
        return sum_text(self.ordered, lambda atom: atom.key, str)

    @cached_property
    def expanded(self) -> Terms:
        """The terms with every remainder replaced by a difference."""
        return expand(self.terms)

    @cached_property
    def _text(self) -> str:
        return sum_text(self.ordered, repr, str)

    def __repr__(self) -> str:
        return self._text

    # -- arithmetic -------------------------------------------------------------------------

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

    # -- structure --------------------------------------------------------------------------

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
        result: dict[Product, int] = {}
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
        low, high = _sum_bounds(self.terms)
        if self.expanded is self.terms:
            return low, high
        other_low, other_high = _sum_bounds(self.expanded)  # may be tighter
        if low is None or (other_low is not None and is_nonnegative(other_low - low)):
            low = other_low
        if high is None or (other_high is not None and is_nonnegative(high - other_high)):
            high = other_high
        return low, high


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
    result = ONE
    for value in values:
        result = result * value
    return result


# -- facts --------------------------------------------------------------------------------------


def _sum_bounds(terms: Terms) -> tuple[Index | None, Index | None]:
    low: Index | None = ZERO
    high: Index | None = ZERO
    for monomial, c in terms.items():
        term_low, term_high = _monomial_bounds(monomial)
        if c < 0:
            term_low, term_high = term_high, term_low
        low = None if low is None or term_low is None else low + term_low * c
        high = None if high is None or term_high is None else high + term_high * c
    return low, high


def _monomial_bounds(monomial: Product) -> tuple[Index | None, Index | None]:
    low: Index | None = ONE
    high: Index | None = ONE
    for atom in monomial:
        atom_low, atom_high = atom.bounds()
        # the product of bounds is a bound only if no factor is negative
        if len(monomial) > 1 and (atom_low is None or not is_nonnegative(atom_low)):
            return None, None
        low = None if low is None or atom_low is None else low * atom_low
        high = None if high is None or atom_high is None else high * atom_high
    return low, high


def is_nonnegative(value: Index) -> bool:
    """True if the value is known to be >= 0 for all sizes."""
    if value.constant is not None:
        return value.constant >= 0
    if value.axes:
        low = value.bounds[0]
        return low is not None and not low.axes and is_nonnegative(low)
    return _terms_are_nonnegative(value.terms) or (
        value.expanded is not value.terms and _terms_are_nonnegative(value.expanded)
    )


def _terms_are_nonnegative(terms: Terms) -> bool:
    shifted: Terms = {}
    for monomial, c in terms.items():
        term: Terms = {(): c}
        for atom in monomial:
            if isinstance(atom, Symbol) and atom.lower is not None:
                # substitutes lower + atom for the atom, which is then >= 0
                term = multiply(term, {(atom,): 1, (): atom.lower})
            elif atom.never_negative():
                term = multiply(term, {(atom,): 1})
            else:
                return False
        shifted = add(shifted, term)
    return all(c >= 0 for c in shifted.values())


def is_positive(value: Index) -> bool:
    """True if the value is known to be > 0."""
    return is_nonnegative(value - 1)


def is_less(left: Index, right: Index) -> bool:
    """True if left < right is known for all values of axes and symbols."""
    return is_positive(right - left)


def within(value: Index, size: Index) -> bool:
    """True if 0 <= value < size is known for all values of axes and symbols."""
    low, high = value.bounds
    if low is None or high is None:
        return False
    return is_nonnegative(low) and is_less(high, size)


# -- division -----------------------------------------------------------------------------------


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
    shared = _shared_factor(rest, denominator)
    if shared != 1:
        inner, left = divide(_scale_down(rest, shared), _scale_down(denominator, shared))
        return quotient + inner, left * shared
    return quotient + _quotient_atom(rest, denominator), _remainder_atom(rest, denominator)


def _shared_factor(rest: Index, denominator: Index) -> int:
    """Return the greatest integer that divides every coefficient of both."""
    return gcd(*rest.terms.values(), *denominator.terms.values())


def _scale_down(value: Index, factor: int) -> Index:
    return collected({m: c // factor for m, c in value.terms.items()})


def _single_atom(value: Index) -> Atom | None:
    if len(value.terms) == 1:
        monomial, c = next(iter(value.terms.items()))
        if c == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def _quotient_atom(numerator: Index, denominator: Index) -> Index:
    inner = _single_atom(numerator)
    if isinstance(inner, Quotient):  # (x // a) // b
        return inner.numerator // (inner.denominator * denominator)
    return to_index(Quotient(numerator, denominator))


def _remainder_atom(numerator: Index, denominator: Index) -> Index:
    return collected({(Remainder(numerator, denominator),): 1})


def extremum(kind: str, left: Index, right: Index) -> Index:
    """Return the max or min of two indices, simplified if their order is known."""
    if left.constant is not None and right.constant is not None:
        pick = max if kind == "max" else min
        return to_index(pick(left.constant, right.constant))
    if is_nonnegative(left - right):
        return left if kind == "max" else right
    if is_nonnegative(right - left):
        return right if kind == "max" else left
    first, second = sorted((left, right), key=lambda index: index.key)
    return to_index(Extremum(kind, first, second))


# -- canonical form -----------------------------------------------------------------------------


def collected(terms: Terms) -> Index:
    """Return the sum of terms, in canonical form."""
    if not any(isinstance(atom, Quotient | Remainder) for monomial in terms for atom in monomial):
        return Index(terms)
    return _recombined(frozenset(terms.items()))


@lru_cache(maxsize=8192)
def _recombined(terms: frozenset[tuple[Product, int]]) -> Index:
    return Index(recombine(dict(terms)))
