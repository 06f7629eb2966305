"""Roundings to a half type after a choice or an extreme instead of before it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cpp_kernels import kernels, kernels_as_eager
from traced_on_cuda import cuda, triton_of

Function = Callable[[torch.Tensor], torch.Tensor]
BFLOAT16, FLOAT16 = torch.bfloat16, torch.float16

CASES: dict[str, tuple[Function, int]] = {
    # the function, and its roundings
    "relu": (lambda x: (x * 1.1).relu(), 1),
    "clamp": (lambda x: (x * 1.1).clamp(-1, 1), 1),
    "the larger of two products": (lambda x: torch.maximum(x * 1.1, x * 0.9), 1),
    "a choice": (lambda x: torch.where(x > 1, x * 1.1, x * 0.9), 1),
    "an absolute value": (lambda x: (x * 1.1).abs().neg(), 1),
    "padded on both sides": (lambda x: F.pad(x * 1.1, (3, 4)), 1),
    "a condition that reads a rounded number": (lambda x: F.leaky_relu(x * 1.1), 2),
    "a number that is used twice": (lambda x: (x * 1.1).relu() + (x * 1.1), 3),
    "no extreme": (lambda x: (x * 1.1).floor() + 1, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_rounds_after_a_choice_or_an_extreme(name: str) -> None:
    function, expected = CASES[name]
    text = triton_of(lambda: (function, (cuda(300, 57, dtype=BFLOAT16),))).text
    assert text.count(".to(tl.bfloat16)") == expected


def every_number(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(1 << 16).to(torch.int16).view(dtype).reshape(64, 1024)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16])
@pytest.mark.parametrize("name", CASES)
def test_all_numbers_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    kernels_as_eager(CASES[name][0], [every_number(dtype)], exact=True)


def test_a_chosen_float16_number_is_converted_once() -> None:
    text = kernels(lambda x: torch.where(x > 1, x * 1.1, x * 0.9), torch.randn(64, 64).half())
    assert "round_all(" not in text
    assert text.count("narrow(") == 1


def test_a_loaded_number_is_not_converted_to_be_chosen() -> None:
    text = triton_of(
        lambda: (lambda x, y: torch.where(x > 1, x * 1.1, y), (cuda(300, 57, dtype=BFLOAT16),) * 2)
    ).text
    assert text.count(".to(tl.float32)") == 1


def test_a_chosen_quotient_and_a_chosen_logarithm_stay_approximate() -> None:
    def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 1, x / y, y.log())

    text = triton_of(lambda: (chosen, (cuda(300, 57, dtype=BFLOAT16),) * 2)).text
    assert "div_rn" not in text
    assert "library.bfloat16_log(" in text
    assert text.count(".to(tl.bfloat16)") == 1
