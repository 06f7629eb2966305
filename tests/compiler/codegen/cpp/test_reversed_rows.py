"""codegen.reversed_rows: rows that are read from the last element to the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from judge import assert_as_eager, compiled
from torch import Tensor
from torch.nn import functional as F

REVERSE = "  reverse("

REVERSED: dict[str, Callable[[Tensor], Any]] = {
    "to another width": lambda x: (x * 2).flip(-1).float() + 1,
    "rounded": lambda x: x.float().flip(-1).mul(3).to(x.dtype),
    "a mask": lambda x: x.float().flip(-1) > 0.5,
    "a row's sum": lambda x: (x.flip(-1) * x).sum(-1),
    "an extreme and a row": lambda x: ((y := x.flip(-1) + 1).amax(-1, True), y.exp()),
    "columns": lambda x: (x.flip(-1) + 1).sum(0),
    "beside a place": lambda x: (x.flip(-1) * x).argmax(-1),
    "with a margin": lambda x: F.pad(x.flip(-1) * 2, (1, 2)).to(torch.float64),
    "in both directions": lambda x: x.flip(0, 1).float() - x.float(),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int16])
@pytest.mark.parametrize("name", REVERSED)
def test_reversed_rows_have_the_results_of_eager(name: str, dtype: torch.dtype) -> None:
    for size in ((70, 257), (33, 64), (5, 13), (3, 2000)):
        x = torch.arange(size[0] * size[1]).remainder(101).view(size).sub(50).to(dtype)
        assert_as_eager(compiled(REVERSED[name]), REVERSED[name], [x])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["to another width", "rounded", "a mask", "columns"])
def test_reversed_rows_of_two_bytes_are_vectorized(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    text = kernels_as_eager(REVERSED[name], [torch.randn(70, 257, dtype=dtype)])
    assert REVERSE in text
    assert scalar_loops(text, tmp_path) == []


def test_rows_of_one_width_are_reversed_by_the_loop_itself() -> None:
    assert REVERSE not in kernels(lambda x: x.flip(-1) + 1, torch.randn(70, 257))


def test_the_gradient_of_a_sum_up_to_each_point_is_vectorized(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        grad = x.flip(-1).cumsum(-1).flip(-1)
        return (grad * x).sigmoid()

    text = kernels_as_eager(function, [torch.randn(70, 257, dtype=torch.bfloat16)])
    assert REVERSE in text


def test_rows_of_unknown_length_are_reversed() -> None:
    def function(x: Tensor) -> Tensor:
        return (x.flip(-1) * x).float().exp()

    once = torch.compile(function, backend="tcdebug", dynamic=True)
    for columns in (300, 301, 17):
        assert_as_eager(once, function, [torch.randn(9, columns, dtype=torch.bfloat16)])


def test_without_their_units_rows_are_neither_reversed_nor_converted() -> None:
    def function(x: Tensor) -> Tensor:
        return x.flip(-1).float().exp()

    x = torch.randn(70, 257, dtype=torch.float16)
    for off, call in (("codegen.reversed_rows", REVERSE), ("codegen.float16_rows", " widen(")):
        assert call in kernels(function, x)
        assert call not in kernels(function, x, off=(off,))
        once = torch.compile(function, backend="tcdebug", options={"off": [off]})
        assert_as_eager(once, function, [x])
