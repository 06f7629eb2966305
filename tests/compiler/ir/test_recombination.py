"""Sums of quotients and remainders have one canonical form: `(e // d) * d + e % d` is e."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_strategies import AXES, DIVISORS, PROPERTY, SYMBOL, Pair, Values, evaluate, values

from tcdebug.compiler.ir.arithmetic.index import Axis, Index, Symbol, is_nonnegative, to_index

FEWER = settings(PROPERTY, max_examples=100)
Divisor = Index | int
Rewriting = Callable[[Index, Divisor, Divisor], tuple[Index, Index]]

K = to_index(Axis("k", to_index(4096)))
I0, I3 = to_index(AXES["i0"]), to_index(AXES["i3"])
S0 = to_index(SYMBOL)

REWRITINGS: dict[str, Rewriting] = {
    "a remainder and its multiple": lambda e, a, b: (e, (e // a) * a + e % a),
    "a remainder as a difference": lambda e, a, b: (e % a, e - (e // a) * a),
    "a multiple as a difference": lambda e, a, b: ((e // a) * a, e - e % a),
    "a remainder of a remainder": lambda e, a, b: (e % a, e % (a * b) % a),
}
"""For any e: two ways to write the same."""

REWRITINGS_OF_ATOMS: dict[str, Rewriting] = {
    "a quotient of a quotient": lambda e, a, b: (e // (a * b), e // a // b),
    "a quotient of a remainder": lambda e, a, b: (e // a % b, e % (a * b) // a),
    "three digits": lambda e, a, b: (e, e // (a * b) * (a * b) + e // a % b * a + e % a),
    "two digits": lambda e, a, b: (e % (a * b), e // a % b * a + e % a),
}
"""For a single axis or symbol."""


@st.composite
def sums(draw: st.DrawFn) -> Pair:
    """Sums of atoms, products, quotients and remainders, without extrema."""
    total = Pair(to_index(0), lambda v: 0)
    for _ in range(draw(st.integers(1, 3))):
        atom = draw(st.sampled_from(["i0", "i1", "i2", "i3", "s0"]))
        scale, divisor = draw(st.integers(-6, 6)), draw(DIVISORS)
        kind = draw(st.sampled_from(["itself", "quotient", "remainder", "sum"]))
        total = _plus(total, atom, scale, divisor, kind)
    return total


def _plus(total: Pair, name: str, scale: int, divisor: Pair, kind: str) -> Pair:
    index = to_index(SYMBOL if name == "s0" else AXES[name])
    bottom = divisor.index
    if kind == "quotient":
        return Pair(
            total.index + index // bottom * scale,
            lambda v: total.python(v) + v[name] // divisor.python(v) * scale,
        )
    if kind == "remainder":
        return Pair(
            total.index + index % bottom * scale,
            lambda v: total.python(v) + v[name] % divisor.python(v) * scale,
        )
    if kind == "sum":  # divides an expression built so far
        return Pair(
            (total.index + index) % bottom + index * scale,
            lambda v: (total.python(v) + v[name]) % divisor.python(v) + v[name] * scale,
        )
    return Pair(total.index + index * scale, lambda v: total.python(v) + v[name] * scale)


def _same(one: Index, other: Index, factor: Index, rest: Index) -> None:
    assert one == other
    assert one * factor + rest == other * factor + rest
    assert rest - one == rest - other
    assert hash(one * factor + rest) == hash(other * factor + rest)
    assert repr(one * factor + rest) == repr(other * factor + rest)


@pytest.mark.parametrize("name", REWRITINGS)
@given(sums(), sums(), sums(), DIVISORS, DIVISORS, values())
@FEWER
def test_equal_expressions_have_the_same_form(
    name: str, e: Pair, factor: Pair, rest: Pair, a: Pair, b: Pair, at: Values
) -> None:
    one, other = REWRITINGS[name](e.index, a.index, b.index)
    _same(one, other, factor.index, rest.index)
    worth = evaluate(one, at) * factor.python(at) + rest.python(at)
    assert evaluate(other * factor.index + rest.index, at) == worth


@pytest.mark.parametrize("name", REWRITINGS_OF_ATOMS)
@given(
    st.sampled_from([*AXES.values(), SYMBOL]), sums(), sums(), DIVISORS, DIVISORS, values()
)  # fmt: skip
@FEWER
def test_the_digits_of_an_atom_have_one_form(
    name: str, atom: Axis | Symbol, factor: Pair, rest: Pair, a: Pair, b: Pair, at: Values
) -> None:
    one, other = REWRITINGS_OF_ATOMS[name](to_index(atom), a.index, b.index)
    _same(one, other, factor.index, rest.index)
    worth = evaluate(one, at) * factor.python(at) + rest.python(at)
    assert evaluate(other * factor.index + rest.index, at) == worth


@given(sums(), values())
@FEWER
def test_a_canonical_form_has_the_value_that_python_computes(pair: Pair, at: Values) -> None:
    assert evaluate(pair.index, at) == pair.python(at)


@given(sums())
@FEWER
def test_adding_and_subtracting_gives_the_form_back(pair: Pair) -> None:
    for other in (K % 64, K // 64, I3 % S0, I3 // S0, S0 % 3):
        assert pair.index + other - other == pair.index
        assert hash(pair.index + other - other) == hash(pair.index)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ((K // 64) * 64 + K % 64, "k"),
        ((K // 64) * 192 + K % 64 * 3, "k*3"),
        ((K // 64) * 64 * S0 + K % 64 * S0, "k*s0"),
        ((K // 64) * 64 * I0 + K % 64 * I0 + K // 7, "i0*k + ((k) // (7))"),
        (K // 64 * 64 + K // 4 % 16 * 4 + K % 4, "k"),
        (K // (S0 * 4) * S0 * 4 + K % (S0 * 4), "k"),
        (K // (S0 + 1) * S0 + K // (S0 + 1) + K % (S0 + 1), "k"),
        (S0 // 2 * 2 + S0 % 2, "s0"),
        ((K + I0) // 5 * 5 + (K + I0) % 5, "i0 + k"),
        (((K % 5 + I0) // 7) * 7 + (K % 5 + I0) % 7, "((k) % (5)) + i0"),
        (K % 64 // 16, "((((k) // (16))) % (4))"),
        ((K % 64 + I0) % 16, "((i0 + k) % (16))"),
        (-(K // 64) * 64, "((k) // (64))*-64"),
        ((K // 64) * 64, "((k) // (64))*64"),
        ((K // 64) * 100 + K % 64, "((k) % (64)) + ((k) // (64))*100"),
        (K % 6 + K // 4 * 5, "((k) % (6)) + ((k) // (4))*5"),
    ],
)
def test_sums_of_digits(index: Index, text: str) -> None:
    assert repr(index) == text


def test_bounds_of_a_size_and_its_half_are_known() -> None:
    size = to_index(Symbol("s1", lower=3))
    assert is_nonnegative(size + size // 2 - 3)
    short = to_index(Axis("j", to_index(100)))
    assert (short + short // 64).bounds == (0, 100)
