"""Elementwise operators of several operations have eager's special values."""

from __future__ import annotations

import pytest
import torch
from externs import compiled_with_reasons
from judge import assert_as_eager, compiled

INF, NAN = float("inf"), float("nan")
VALUES = [0.0, -0.0, 1.5, 2.5, -2.5, 0.125, -1234.5678, 1e30, -1e-30, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_angles_of_real_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    assert_as_eager(compiled(torch.angle), torch.angle, [x], exact=True)


@pytest.mark.parametrize("decimals", [0, 2, -3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rounding_to_decimals(dtype: torch.dtype, decimals: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.round(x, decimals=decimals)

    x = torch.tensor(VALUES, dtype=dtype)
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, [x], exact=True)
    assert left == {}


def test_rsub_subtracts_its_first_operand_from_the_second() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.rsub(x, y, alpha=2)

    inputs = [torch.tensor([1.0, 2.0]), torch.tensor([5.0, 5.0])]
    once, left = compiled_with_reasons(function)
    assert once(*inputs).tolist() == [3.0, 1.0]
    assert left == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_neighbours_of_numbers(dtype: torch.dtype) -> None:
    """Of zeros, the extremes, and numbers where the exponent changes, in all directions."""
    limits = torch.finfo(dtype)
    smallest = limits.smallest_normal * limits.eps
    some = [*VALUES, 1.0, 2.0, smallest, limits.smallest_normal, limits.max]
    values = torch.tensor([*some, *(-v for v in some)], dtype=dtype)
    pairs = torch.cartesian_prod(values, values)
    x, y = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
    assert_as_eager(compiled(torch.nextafter), torch.nextafter, [x, y], exact=True)


def test_the_neighbour_of_a_bfloat16_is_another_bfloat16() -> None:
    x = torch.tensor([1.0, -1.0], dtype=torch.bfloat16)
    found = compiled(torch.nextafter)(x, torch.tensor([2.0, 2.0], dtype=torch.bfloat16))
    assert found.tolist() == [1.0078125, -0.99609375]
