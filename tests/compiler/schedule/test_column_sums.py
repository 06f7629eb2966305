"""Columns that are added up in the kernel that reduces the rows of the same elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, scalar_loops
from judge import assert_as_eager, compiled
from stages import capture
from torch import Tensor
from torch.nn import functional as F


def numbers(*size: int) -> Tensor:
    """Small integers, whose sums are exact in any order."""
    return torch.randint(-9, 10, size, generator=torch.Generator().manual_seed(0)).float()


def gradient(g: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """What the gradient of a normalisation computes, in numbers that are exact."""
    product = g * x
    rows = g - product.sum(-1, keepdim=True) * x
    across = tuple(range(x.dim() - 1))
    return rows, product.sum(across), g.sum(across) * 2


def joined(function: Callable[..., Any], *inputs: Tensor) -> bool:
    """Whether the last kernel of a function adds up columns beside rows."""
    kernel = capture(function, *inputs).schedules[-1].kernels()[-1]
    return any(kernel.is_across(node) for node in kernel.nodes)


@pytest.mark.parametrize(
    "size",
    [(1, 64), (5, 67), (100, 100), (4, 9, 100), (3, 5, 7, 70), (3000, 64)],
    ids=str,
)
def test_rows_and_columns_are_as_in_eager(size: tuple[int, ...]) -> None:
    inputs = [numbers(*size), numbers(*size).flip(0)]
    assert joined(gradient, *inputs) or size[0] == 1
    assert_as_eager(compiled(gradient, dynamic=False), gradient, inputs, exact=True)


def test_the_number_of_rows_may_be_dynamic() -> None:
    function = compiled(gradient, dynamic=None)
    for rows in (700, 3, 2000):
        inputs = [numbers(rows, 96), numbers(rows, 96).flip(0)]
        assert_as_eager(function, gradient, inputs, exact=True)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    inputs = [torch.randn(2000, 80) for _ in range(2)]
    function = compiled(gradient, dynamic=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = function(*inputs)
        torch.set_num_threads(4)
        assert all(map(torch.equal, one, function(*inputs)))
    finally:
        torch.set_num_threads(before)


def test_long_columns_are_added_in_double() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x - x.sum(-1, keepdim=True), x.sum(0)

    x = torch.full((100_000, 64), 4097.0)  # the sum of a slot is not exact in float
    assert compiled(function, dynamic=False)(x)[1].tolist() == [409_700_000.0] * 64


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_of_norms_are_one_kernel(dtype: torch.dtype) -> None:
    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x + 1, x.shape[-1:], w, b)

    def rms(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w + b

    for function in (layer, rms):
        inputs = [torch.randn(size, dtype=dtype) for size in ((200, 3, 96), (96,), (96,))]
        leaves = [t.requires_grad_() for t in inputs]
        backward = capture(function, *leaves).schedules[-1]
        assert len(backward.kernels()) == 1
        torch._dynamo.reset()
        assert_as_eager(compiled(function, dynamic=False), function, leaves)


def test_a_gradient_may_overwrite_the_one_it_is_computed_from() -> None:
    def function(a: Tensor, b: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        g = a @ b
        columns = g.sum(0), (g * x).sum(0)
        return *columns, g - (g * x).sum(-1, keepdim=True) * x

    inputs = [numbers(120, 8), numbers(8, 64), numbers(120, 64)]
    kernel = capture(function, *inputs).schedules[-1].kernels()[-1]
    assert any(getattr(node, "into", "") for node in kernel.nodes)
    assert_as_eager(compiled(function, dynamic=False), function, inputs, exact=True)


def _softmax_of_columns(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum(-1), x / x.abs().sum(0)


def _transposed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.t() - x.t().sum(-1, keepdim=True), x.t().sum(0)


def _places(x: Tensor) -> tuple[Tensor, Tensor]:
    return x - x.sum(-1, keepdim=True), x.argmax(0)


def _whole_numbers(x: Tensor) -> tuple[Tensor, Tensor]:
    return x - x.sum(-1, keepdim=True), x.long().sum(0)


@pytest.mark.parametrize("function", [_transposed, _places, _whole_numbers])
def test_other_reductions_of_columns_stay_apart(function: Callable[..., Any]) -> None:
    assert not joined(function, numbers(100, 100))


def test_elements_that_need_the_sum_of_their_column_wait_for_it() -> None:
    x = numbers(100, 100) + 10
    assert_as_eager(compiled(_softmax_of_columns, dynamic=False), _softmax_of_columns, [x])


def test_short_and_very_long_rows_stay_apart() -> None:
    assert not joined(gradient, numbers(100, 30), numbers(100, 30))
    assert not joined(gradient, numbers(40, 40000), numbers(40, 40000))


def test_all_loops_are_vectorized(tmp_path: Path) -> None:
    text = kernels(gradient, numbers(600, 768), numbers(600, 768))
    assert "column_" in text
    assert scalar_loops(text, tmp_path) == []
