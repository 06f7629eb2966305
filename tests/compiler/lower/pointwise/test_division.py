"""How a division by a number is computed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from traced_on_cuda import cuda, triton_of

Function = Callable[..., torch.Tensor]


def divides_a_loaded_value(function: Function, *, tensors: int = 1) -> bool:
    """Return whether the kernel for a GPU divides by or into what it loads."""
    text = triton_of(lambda: (function, tuple(cuda(100) for _ in range(tensors)))).text
    loaded = re.findall(r"(t\d+) = tl\.load", text)
    divided = re.findall(r"div_rn\((t\d+), (t\d+)\)", text)
    assert len(divided) == 1
    return bool(set(divided[0]) & set(loaded))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / 3.0,
        lambda x: x / 7,
        lambda x: torch.div(x, 49.0, rounding_mode="trunc"),
    ],
)
def test_on_a_gpu_a_number_is_inverted_once_as_in_eager(function: Function) -> None:
    assert not divides_a_loaded_value(function)


def test_on_a_gpu_tensors_are_divided() -> None:
    assert divides_a_loaded_value(lambda x, y: x / y, tensors=2)
    assert divides_a_loaded_value(lambda x: 3.0 / x)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, r"t\d+ / t\d+"),
        (torch.float16, r"library\.float16_quotient\(t\d+, t\d+\)"),
        (torch.float32, r"tl\.div_rn\(t\d+, t\d+\)"),
    ],
)
def test_on_a_gpu_numbers_of_half_types_are_divided_without_branches(
    dtype: torch.dtype, expected: str
) -> None:
    """Division that is rounded correctly has branches, and float32 needs it."""

    def program() -> tuple[Function, tuple[torch.Tensor, ...]]:
        return lambda x, y: x.abs() / y, (cuda(100, dtype=dtype), cuda(100, dtype=dtype))

    text = triton_of(program).text
    assert len(re.findall(expected, text)) == 1
