"""Numbers beside tensors of a half type are rounded to it where eager rounds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled
from property_settings import property_settings
from torch import Tensor

HALVES = [torch.float16, torch.bfloat16]
X = torch.linspace(-3, 3, 1024)  # whole vectors: eager rounds multiples twice in the rest
OPERATORS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "add": lambda x, n: x + n,
    "subtract": lambda x, n: x - n,
    "subtract from": lambda x, n: n - x,
    "update": lambda x, n: x.clone().add_(n),
    "add a multiple": lambda x, n: torch.add(x, x.flip(0), alpha=n),
    "subtract a multiple": lambda x, n: torch.sub(x, x.flip(0), alpha=n),
    "subtract a multiple from": lambda x, n: torch.rsub(x, n, alpha=0.3),
    "multiply": lambda x, n: x * n,
    "divide": lambda x, n: x / n,
    "power": lambda x, n: x.abs() ** n,
    "power of": lambda x, n: abs(n) ** x,
    "remainder": lambda x, n: x % n,
    "fmod": lambda x, n: torch.fmod(x, n),
    "copysign": torch.copysign,
    "multiply and add": lambda x, n: torch.addcmul(x, x, x, value=n),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("number", [0.3, -1001.3])
def test_an_operation_with_a_number_rounds_as_in_eager(
    name: str, number: float, dtype: torch.dtype
) -> None:
    torch._dynamo.reset()
    operator = OPERATORS[name]
    assert_as_eager(
        compiled(lambda x: operator(x, number)),
        lambda x: operator(x, number),
        [X.to(dtype)],
        exact=True,
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_wider_tensor_without_dimensions_is_rounded_as_a_number_is(dtype: torch.dtype) -> None:
    def function(x: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        return x + n, n - x, x * n, x / n, torch.atan2(x, n + 1), torch.hypot(x, n), x.maximum(n)

    for number in (0.3, 1 / 3):
        torch._dynamo.reset()
        inputs = [X.to(dtype), torch.tensor(number)]
        assert_as_eager(compiled(function), function, inputs, exact=True)


def test_the_remainder_by_a_number_is_that_by_the_nearest_half() -> None:
    x = torch.tensor([3.0], dtype=torch.float16)  # 0.3 is 0.300048828125 in float16
    assert compiled(lambda x: x % 0.3)(x).tolist() == (x % 0.3).tolist() == [0.299560546875]


@property_settings(6)
@given(number=st.floats(-70000, 70000), dtype=st.sampled_from(HALVES))
def test_any_number_is_added_as_in_eager(number: float, dtype: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        return (x + number) * 2 - number

    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [X.to(dtype)], exact=True)


def test_the_multiple_of_a_subtrahend_is_any_number() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return torch.rsub(x, 3, alpha=2), torch.rsub(x, y, alpha=2), torch.sub(x, 3, alpha=2)

    for dtype in (torch.int64, torch.float32):
        torch._dynamo.reset()
        assert_as_eager(compiled(function), function, [torch.arange(5).to(dtype)] * 2)
