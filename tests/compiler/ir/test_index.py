"""Index arithmetic compared with Python's integers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import AXES, PAIRS, PROPERTY, SIZES, SYMBOL, Pair, Values, evaluate, values

from tcdebug.compiler.ir.arithmetic.index import (
    ONE,
    ZERO,
    Atom,
    Axis,
    Index,
    Symbol,
    divide,
    exact_quotient,
    is_nonnegative,
    product,
    to_index,
    within,
)
from tcdebug.compiler.ir.arithmetic.order import extremum, is_less, is_positive
from tcdebug.compiler.ir.expr import Indirect, Load

I0, I1, I2, I3 = (to_index(AXES[f"i{k}"]) for k in range(4))
S0 = to_index(SYMBOL)


@given(PAIRS, values())
@PROPERTY
def test_an_index_has_the_value_that_python_computes(pair: Pair, at: Values) -> None:
    assert evaluate(pair.index, at) == pair.python(at)


@given(PAIRS, PAIRS, PAIRS)
@PROPERTY
def test_addition_and_multiplication_form_a_commutative_ring(a: Pair, b: Pair, c: Pair) -> None:
    x, y, z = a.index, b.index, c.index
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert x - x == 0
    assert x + ZERO == x
    assert x * ONE == x


@given(PAIRS)
@PROPERTY
def test_equal_indices_have_equal_hashes_and_texts(pair: Pair) -> None:
    rebuilt = sum((Index({m: c}) for m, c in reversed(pair.index.terms.items())), start=ZERO)
    assert rebuilt == pair.index
    assert hash(rebuilt) == hash(pair.index)
    assert repr(rebuilt) == repr(pair.index)


@given(PAIRS, PAIRS, st.integers(-6, 6), st.booleans())
@PROPERTY
def test_equality_of_indices_and_integers_is_an_equivalence(
    a: Pair, b: Pair, number: int, truth: bool
) -> None:
    _is_an_equality([a.index, b.index, a.index - b.index, to_index(number), number, truth])


def test_equality_of_atoms_indices_and_integers_is_an_equivalence() -> None:
    _is_an_equality(
        [
            *(Axis(name, to_index(size)) for name in ("i0", "s0") for size in (1, 4, 5)),
            *(Symbol(name, lower) for name in ("i0", "s0") for lower in (None, 0, 2)),
            *(Axis("i0", to_index(Axis("i1", to_index(size)))) for size in (4, 5)),
            *(to_index(value) for value in (0, 1, True, -1)),
            *(I0, S0, I0 - I0, I0 // 3, I0 % 3, (I0 // 3) * 3 + I0 % 3, 0, 1, -1, True, False),
            *(a for index in (I3 // 3, I3 % 3, extremum("max", I3, S0)) for a in index.atoms),
        ]
    )


def _is_an_equality(values: Sequence[object]) -> None:
    for a in values:
        assert a == a
        for b in values:
            assert (a == b) == (b == a)
            assert (a != b) == (not (a == b))  # noqa: SIM201 - both operators are tested
            assert a != b or hash(a) == hash(b)
            assert all(a == c for c in values if a == b == c)


def test_atoms_of_different_kind_size_or_bound_are_not_equal() -> None:
    four, five = to_index(4), to_index(5)
    assert Axis("i0", four) == Axis("i0", four)
    assert Axis("i0", four) != Axis("i0", five)
    assert Axis("i0", four) != Symbol("i0")
    assert Symbol("s0", 0) != Symbol("s0", 2)
    assert Symbol("s0", None) != Symbol("s0", 0)
    assert to_index(Axis("i0", four)) != Axis("i0", four)
    assert to_index(Axis("i0", four)) // 3 != to_index(Axis("i0", five)) // 3
    assert {to_index(1): "one"}[1] == "one"  # type: ignore[index]  # an index equals its integer


def test_expressions_with_axes_of_different_sizes_have_different_keys() -> None:
    short, long = (to_index(Axis("i0", to_index(size))) for size in (4, 5))
    loads = [Load(torch.float32, "x", (index,)) for index in (short, long, long)]
    assert [load.key == loads[1].key for load in loads] == [False, True, True]
    places = [to_index(Indirect(load, S0, checked=False)) for load in loads]
    assert [place == places[1] for place in places] == [False, True, True]


@given(PAIRS, values())
@PROPERTY
def test_bounds_hold_and_contain_no_axis(pair: Pair, at: Values) -> None:
    low, high = pair.index.bounds
    worth = pair.python(at)
    if low is not None:
        assert not low.axes
        assert evaluate(low, at) <= worth
    if high is not None:
        assert not high.axes
        assert worth <= evaluate(high, at)


@given(PAIRS, PAIRS, values())
@PROPERTY
def test_claims_about_order_hold(a: Pair, b: Pair, at: Values) -> None:
    if is_nonnegative(a.index):
        assert a.python(at) >= 0
    if is_positive(a.index):
        assert a.python(at) > 0
    if is_less(a.index, b.index):
        assert a.python(at) < b.python(at)
    if within(a.index, b.index):
        assert 0 <= a.python(at) < b.python(at)


@given(PAIRS, PAIRS, values())
@PROPERTY
def test_substitution_replaces_an_axis_by_a_value(a: Pair, b: Pair, at: Values) -> None:
    replaced = a.index.substitute({AXES["i0"]: b.index % SIZES["i0"]})
    assert evaluate(replaced, at) == a.python({**at, "i0": b.python(at) % SIZES["i0"]})


@given(PAIRS, values())
@PROPERTY
def test_a_coefficient_is_the_slope_along_an_axis(pair: Pair, at: Values) -> None:
    slope = pair.index.coefficient(AXES["i1"])
    if slope is not None:
        step = pair.python({**at, "i1": 1}) - pair.python({**at, "i1": 0})
        assert evaluate(slope, at) == step


@given(PAIRS, PAIRS, values())
@PROPERTY
def test_an_exact_quotient_times_the_divisor_is_the_dividend(a: Pair, b: Pair, at: Values) -> None:
    if b.index.constant == 0:
        return
    quotient = exact_quotient(a.index * b.index, b.index)
    if quotient is not None:
        assert quotient * b.index == a.index * b.index


def test_splitting_and_joining_an_axis_gives_the_axis_back() -> None:
    flat = I0 * 15 + I1 * 5 + I2
    assert flat // 15 == I0
    assert flat // 5 % 3 == I1
    assert flat % 5 == I2


def test_splitting_and_joining_works_for_symbolic_sizes() -> None:
    inner = to_index(Axis("j", S0))
    assert (I0 * S0 + inner) // S0 == I0
    assert (I0 * S0 + inner) % S0 == inner


def test_common_factors_are_cancelled_in_a_division() -> None:
    assert repr((I0 * 6) // 4) == "((i0*3) // (2))"
    assert repr((I0 * 6) % 4) == "((i0*3) % (2))*2"


def test_five_i_over_four_is_not_i_plus_i_over_four() -> None:
    assert [evaluate((I0 * 5) // 4, {"i0": k}) for k in range(4)] == [0, 1, 2, 3]


def test_a_negative_dividend_rounds_down() -> None:
    assert divide(to_index(-7), to_index(3)) == (to_index(-3), to_index(2))
    assert evaluate((I0 - 3) // 2, {"i0": 0}) == -2


def test_division_by_an_empty_size_is_defined() -> None:
    assert divide(to_index(7), ZERO) == (ZERO, ZERO)
    assert divide(I0 * 2 + 1, ZERO) == (ZERO, ZERO)


def test_nested_quotients_and_nested_remainders_are_merged() -> None:
    big = to_index(Axis("k", to_index(1000)))
    assert (big // 4) // 5 == big // 20
    assert (big % 20) % 5 == big % 5


def test_what_is_less_than_a_unit_of_the_divisor_does_not_change_a_quotient() -> None:
    i, j = (to_index(Axis(name, to_index(size))) for name, size in (("i", 192), ("j", 384)))
    flat = i + j * 192
    assert flat // 2304 == j // 12
    assert flat % 2304 == j % 12 * 192 + i
    assert (i // 48 + j * 4) // 48 == j // 12
    assert flat // 2304 * 2304 + flat // 48 % 48 * 48 + flat % 48 == flat
    assert (flat + 1) // 2304 != j // 12


def test_an_extremum_is_simplified_if_the_order_is_known() -> None:
    assert extremum("max", I0, I0 + 1) == I0 + 1
    assert extremum("min", S0, to_index(2)) == 2
    assert repr(extremum("max", S0, to_index(5))) == "max(5, s0)"
    assert extremum("max", S0, to_index(5)) == extremum("max", to_index(5), S0)


def test_a_symbol_without_a_known_bound_may_be_negative() -> None:
    unknown = to_index(Symbol("u0", lower=None))
    assert not is_nonnegative(unknown)
    assert is_nonnegative(to_index(Symbol("u1", lower=0)))
    assert not is_positive(to_index(Symbol("u1", lower=0)))


def test_the_product_of_no_factors_is_one() -> None:
    assert product([]) == 1
    assert product([S0, I0, to_index(2)]) == I0 * S0 * 2


def test_substituting_an_unused_atom_changes_nothing() -> None:
    index = I0 * 3 + S0
    assert index.substitute({AXES["i1"]: ZERO}) is index


@pytest.mark.parametrize("value", [0, 1, -1, 7, 2**40])
def test_a_constant_equals_its_integer(value: int) -> None:
    assert to_index(value) == value
    assert to_index(value).constant == value


def test_axes_inside_quotients_are_found() -> None:
    index = (I3 + I0) // S0
    atoms: set[Atom] = set(index.axes)
    assert atoms == {AXES["i0"], AXES["i3"]}
    assert index.symbols == {SYMBOL}
