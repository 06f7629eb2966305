"""Operations that Triton kernels compute in another way, with the same result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from traced_on_cuda import cuda, triton_of

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("columns", [56, 64, 1000])
def test_a_mean_is_a_multiplication_as_in_eager(columns: int) -> None:
    text = triton_of(lambda: (lambda x: x.mean(1), (cuda(300, columns),))).text
    assert "div_rn" not in text
    assert f"tl.full([], {torch.tensor(1 / columns).item()}, tl.float32)" in text


@pytest.mark.parametrize(("side", "divisions"), [(2, 0), (4, 0), (3, 1)])
def test_a_mean_of_windows_of_a_power_of_two_elements_has_no_division(
    side: int, divisions: int
) -> None:
    pooled = triton_of(lambda: (lambda x: F.avg_pool2d(x, side), (cuda(8, 8, 48, 48),)))
    assert pooled.text.count("div_rn") == divisions


@pytest.mark.parametrize("function", [torch.sigmoid, F.silu])
def test_a_division_by_an_approximate_exponential_is_approximate(function: Function) -> None:
    text = triton_of(lambda: (function, (cuda(300),))).text
    assert "tl.exp(" in text
    assert "div_rn" not in text


LOGARITHMS: dict[str, tuple[torch.dtype, Function, int]] = {
    "of a number": (torch.bfloat16, torch.log, 1),
    "of a logarithm": (torch.bfloat16, lambda x: x.log().log(), 2),
    "of a number of float16": (torch.float16, torch.log, 0),
    "that is not rounded": (torch.bfloat16, lambda x: x.float().log(), 0),
    "of what is no number of bfloat16": (torch.bfloat16, lambda x: x.float().sin().log().to(x), 0),
}


@pytest.mark.parametrize("name", LOGARITHMS)
def test_a_logarithm_is_that_of_the_hardware_if_it_rounds_to_the_same_bfloat16(name: str) -> None:
    dtype, function, count = LOGARITHMS[name]
    text = triton_of(lambda: (function, (cuda(300, dtype=dtype),))).text
    assert text.count("library.bfloat16_log(") == count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elements_outside_of_a_mask_are_no_zeros_which_take_longer_to_divide(
    dtype: torch.dtype,
) -> None:
    text = triton_of(lambda: (lambda x: (x / 3.5).sum(1), (cuda(300, 57, dtype=dtype),))).text
    assert ", rmask, 1)" in text
    assert "tl.where(rmask, " in text


@pytest.mark.parametrize("number", [0.25, -8.0, 2.0**-126, 2.0**127])
def test_a_multiplication_by_the_reciprocal_of_a_power_of_two_is_exact(number: float) -> None:
    tiny, huge = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    x = torch.tensor([0.0, -0.0, 1.0, 3.0, 1 / 3, tiny / 8, tiny * 3, huge, -huge, torch.inf])
    x = torch.cat([x, torch.randn(1000) * 2.0 ** torch.randint(-140, 120, (1000,))])
    assert torch.equal(x / torch.full_like(x, number), x * (1 / number))


def test_a_softmax_of_numbers_without_memory_is_written() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(3000, device=x.device).unsqueeze(1)
        columns = torch.arange(50_000, device=x.device)
        return (rows * columns).sin().logsumexp(1) + x

    assert "add_distances" in triton_of(lambda: (function, (cuda(1),))).text
