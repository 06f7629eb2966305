"""Random index expressions, together with their values in Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st
from property_settings import property_settings

from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, Symbol, to_index
from tcdebug.compiler.ir.arithmetic.order import extremum

PROPERTY = property_settings(200)

SIZES = {"i0": 4, "i1": 3, "i2": 5}
SYMBOL = Symbol("s0", lower=2)
AXES = {
    **{name: Axis(name, to_index(size)) for name, size in SIZES.items()},
    "i3": Axis("i3", to_index(SYMBOL) * 2),
}

Values = Mapping[str, int]


@dataclass(frozen=True)
class Pair:
    """An index, and a function that computes it in Python from the values of the atoms."""

    index: Index
    python: Callable[[Values], int]

    def __repr__(self) -> str:
        return repr(self.index)


def _leaf(name: str) -> Pair:
    atom: Atom = SYMBOL if name == "s0" else AXES[name]
    return Pair(to_index(atom), lambda v: v[name])


def _constant(value: int) -> Pair:
    return Pair(to_index(value), lambda v: value)


def _sum(a: Pair, b: Pair) -> Pair:
    return Pair(a.index + b.index, lambda v: a.python(v) + b.python(v))


def _difference(a: Pair, b: Pair) -> Pair:
    return Pair(a.index - b.index, lambda v: a.python(v) - b.python(v))


def _product(a: Pair, b: Pair) -> Pair:
    return Pair(a.index * b.index, lambda v: a.python(v) * b.python(v))


def _quotient(a: Pair, b: Pair) -> Pair:
    return Pair(a.index // b.index, lambda v: a.python(v) // b.python(v))


def _remainder(a: Pair, b: Pair) -> Pair:
    return Pair(a.index % b.index, lambda v: a.python(v) % b.python(v))


def _extremum(kind: str, a: Pair, b: Pair) -> Pair:
    pick = max if kind == "max" else min
    return Pair(extremum(kind, a.index, b.index), lambda v: pick(a.python(v), b.python(v)))


LEAVES = st.one_of(
    st.sampled_from(["i0", "i1", "i2", "i3", "s0"]).map(_leaf),
    st.integers(-6, 6).map(_constant),
)
DIVISORS = st.one_of(
    st.integers(1, 7).map(_constant),
    st.just(_leaf("s0")),
    st.integers(1, 4).map(lambda k: _product(_leaf("s0"), _constant(k))),
)

PAIRS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_sum, inner, inner),
        st.builds(_difference, inner, inner),
        st.builds(_product, inner, inner),
        st.builds(_quotient, inner, DIVISORS),
        st.builds(_remainder, inner, DIVISORS),
        st.builds(_extremum, st.sampled_from(["max", "min"]), inner, inner),
    ),
    max_leaves=6,
)


@st.composite
def values(draw: st.DrawFn) -> dict[str, int]:
    """Values of all atoms, each in its range."""
    s0 = draw(st.integers(2, 9))
    found = {name: draw(st.integers(0, size - 1)) for name, size in SIZES.items()}
    return {**found, "s0": s0, "i3": draw(st.integers(0, 2 * s0 - 1))}


def evaluate(index: Index, at: Values) -> int:
    """The value of the printed text of an index, evaluated by Python."""
    return int(eval(repr(index), {"max": max, "min": min}, dict(at)))
