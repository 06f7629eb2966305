"""Arithmetic on extreme numbers has eager's bits on a GPU. Skipped without one.

pytest tests/device
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

INF = float("inf")
NUMBERS = (
    *(0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-30, 0.1, 0.7, 1.0, 1.5, 3.0, 49.0),
    *(1e10, 1.7e38, 3.4e38, INF, float("nan")),
)
"""They include subnormal numbers, which functions of libdevice can take for zero."""
UNARY = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "frac", "sinc", "tan")
BINARY = ("div", "fmod", "remainder", "copysign", "nextafter", "xlogy")
DIVISORS = (49.0, 3.0, 1e-40, 1e-45, 0.0, INF, 7, -1e-40)


def same_bits(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    torch._dynamo.reset()
    expected, actual = function(*inputs), torch.compile(function, backend="tcdebug")(*inputs)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(actual.signbit() & (actual == 0), expected.signbit() & (expected == 0))


def numbers() -> torch.Tensor:
    positive = torch.tensor(NUMBERS, device="cuda")
    return torch.cat((positive, -positive))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_a_number(name: str) -> None:
    same_bits(getattr(torch, name), numbers())


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers(name: str) -> None:
    x = numbers()
    left, right = torch.meshgrid(x, x, indexing="ij")
    same_bits(getattr(torch, name), left.reshape(-1), right.reshape(-1))


@pytest.mark.parametrize("divisor", DIVISORS)
def test_a_division_by_a_number_is_a_multiplication_by_its_reciprocal(divisor: float) -> None:
    whole = torch.arange(-300.0, 300.0, device="cuda") * 49
    x = torch.cat((numbers(), whole, torch.randn(2000, device="cuda")))
    for values in (x, x.half(), x.bfloat16(), x.double()):
        same_bits(lambda v: v / divisor, values)
    same_bits(lambda v: torch.div(v, divisor, rounding_mode="trunc"), x)
    same_bits(lambda v: v / divisor, torch.arange(-50, 50, device="cuda"))
