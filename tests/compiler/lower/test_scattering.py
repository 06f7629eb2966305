"""Scatter with one position a row, and diagonals: each element tells whether it is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from externs import reasons
from judge import assert_as_eager, compiled, gradients
from programs import f32, i64
from torch.nn import functional as F

SCATTERS: dict[str, Callable[..., Any]] = {
    "value": lambda x, i: x.scatter(1, i, 1.5),
    "source": lambda x, i: x.scatter(1, i, x * 2),
    "add": lambda x, i: x.scatter_add(1, i, x * 2),
    "fewer_rows": lambda x, i: x.scatter(1, i[:2], -1.0),
    "middle": lambda x, i: x.expand(3, 4, 5).scatter(-2, i[:3, :, None].expand(3, 1, 5), 7.0),
    "whole_number": lambda x, i: (x * 9).long().scatter(1, i, 3),
    "half": lambda x, i: x.bfloat16().scatter_add(1, i, x.bfloat16()),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_one_position_a_row_is_replaced(name: str) -> None:
    function = SCATTERS[name]
    inputs = [f32(4, 5), i64(4, 4, 1)]
    assert_as_eager(compiled(function), function, inputs, exact=True)
    torch._dynamo.reset()
    assert reasons(function, *inputs) == {}


def test_a_position_out_of_bounds_is_an_error() -> None:
    with pytest.raises(Exception, match="out of"):
        compiled(SCATTERS["value"])(f32(4, 5), torch.full((4, 1), 5))


def test_several_positions_a_row_are_left_to_aten() -> None:
    several = reasons(lambda x, i: x.scatter(1, i, 1.0), f32(4, 5), i64(4, 4, 2))
    assert several == {"aten.scatter.value": "2 positions along the dimension"}


def test_the_gradient_of_a_cross_entropy_calls_nothing() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, y, ignore_index=3)

    x, y = f32(6, 10).requires_grad_(), i64(10, 6)
    assert reasons(function, x, y) == {}
    torch._dynamo.reset()
    mine = gradients(compiled(function), [x.detach().requires_grad_(), y])
    theirs = gradients(function, [x.detach().requires_grad_(), y])
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    ("offset", "first", "second"), [(0, 0, 1), (2, 0, 1), (-1, 0, 1), (1, 2, 0)]
)
def test_a_diagonal_is_replaced(offset: int, first: int, second: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        new = x.diagonal(offset, first, second) * 3 + 1
        return torch.diagonal_scatter(x, new, offset, first, second)

    inputs = [f32(4, 6, 5)]
    assert_as_eager(compiled(function), function, inputs, exact=True)
    torch._dynamo.reset()
    assert reasons(function, *inputs) == {}
