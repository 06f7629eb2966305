"""Integers as linear functions of a position, and where they change."""

from __future__ import annotations

import pytest
import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.ir.expr import Constant, Expr, IndexValue
from tcdebug.compiler.ir.linear_parts import (
    Changes,
    Linear,
    known_truth,
    linear,
    linear_parts,
)

AXIS = Axis("i0", to_index(100))


def position() -> Expr:
    return IndexValue(torch.int64, to_index(AXIS))


def constant(value: int) -> Expr:
    return Constant(torch.int64, value)


def test_a_step_that_is_used_many_times_is_computed_once() -> None:
    value = position()
    for _ in range(60):
        value = call("add", value, value)
    assert linear(value, AXIS, 0, 100) == Linear(2**60, 0)


def test_a_reflection_is_linear_before_and_after_its_turn() -> None:
    reflected = call("abs", call("sub", position(), constant(30)))
    with pytest.raises(Changes) as changes:
        linear(reflected, AXIS, 0, 100)
    assert changes.value.point == 30
    assert linear(reflected, AXIS, 0, 30) == Linear(-1, 30)
    assert linear(reflected, AXIS, 30, 100) == Linear(1, -30)
    assert linear_parts(reflected, AXIS) == 2


def test_a_rotation_has_two_parts_and_a_product_of_positions_none() -> None:
    rotated = call("remainder", call("add", position(), constant(95)), constant(100))
    assert linear_parts(rotated, AXIS) == 2
    assert linear_parts(call("mul", position(), position()), AXIS) is None


@pytest.mark.parametrize(("name", "left", "right", "holds"), [
    ("eq", 3, 3, True), ("eq", 3, 4, False), ("ne", 3, 3, False), ("lt", 3, 4, True),
])  # fmt: skip
def test_a_condition_on_numbers_is_known(name: str, left: int, right: int, holds: bool) -> None:
    numbers = (Constant(torch.int64, left), Constant(torch.int64, right))
    assert known_truth(call(name, *numbers)) is holds
    place = IndexValue(torch.int64, to_index(Axis("i", to_index(9))))
    assert known_truth(call(name, place, numbers[1])) is None


def test_an_equal_position_of_the_same_axis_is_known_and_another_one_is_not() -> None:
    axis = Axis("i", to_index(9))
    here, next_to_it = (IndexValue(torch.int64, to_index(axis) + k) for k in (0, 1))
    assert linear(call("eq", here, next_to_it), axis, 0, 9) == Linear(0, 0)
    assert linear(call("ne", here, next_to_it), axis, 0, 9) == Linear(0, 1)
    assert linear(call("eq", here, Constant(torch.int64, 4)), axis, 0, 9) is None
