"""Results that are neighbours along another axis than the vector lanes are stored in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels_as_eager

STORED = "transpose(rows_of_"

REDUCED: dict[str, Callable[[torch.Tensor], Any]] = {
    "sum": lambda x: x.sum(1),
    "norm": lambda x: x.norm(dim=1),
    "extreme and mean": lambda x: (x.amax(1), x.mean(1)),
    "place": lambda x: x.argmax(1),
    "variance and what is computed of it": lambda x: (x.var(1) + 1).rsqrt(),
    "any": lambda x: (x > 1).any(1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize(("rows", "columns"), [(45, 65), (16, 64), (509, 130), (8, 70)])
def test_results_across_the_lanes_are_those_of_eager(name: str, rows: int, columns: int) -> None:
    x = torch.randn(rows, 5, columns).permute(2, 1, 0)
    assert STORED in kernels_as_eager(REDUCED[name], [x])


@pytest.mark.sampled
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8]
)
def test_results_of_any_dtype_are_stored_in_blocks(dtype: torch.dtype) -> None:
    x = torch.arange(9 * 5 * 77).remainder(11).view(9, 5, 77).permute(2, 1, 0)
    assert STORED in kernels_as_eager(lambda x: x.amax(1), [x.to(dtype)], exact=True)


def test_results_of_short_rows_are_transposed_as_the_rows_are() -> None:
    x = torch.randn(28, 20, 64, 13).permute(3, 2, 1, 0)
    text = kernels_as_eager(lambda x: x.amax(0), [x])
    assert "transpose<1>(" in text


def test_results_that_are_neighbours_of_lanes_or_overwrite_others_are_stored_at_once() -> None:
    x = torch.randn(45, 5, 65)
    assert STORED not in kernels_as_eager(lambda x: x.sum(1), [x])

    def overwrite(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y.copy_(x.sum(1))

    inputs = [x.permute(2, 1, 0), torch.zeros(65, 45)]
    assert STORED not in kernels_as_eager(overwrite, inputs)
