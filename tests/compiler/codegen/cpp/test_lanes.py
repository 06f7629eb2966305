"""Reductions with vector lanes along an outer axis: few columns, positions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager, scalar_loops
from judge import about, assert_as_eager, compiled
from torch.nn import functional as F

FEW_COLUMNS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "sum": (lambda x: x.sum(0), torch.randn(3001, 3)),
    "sum of all rows": (lambda x: x.sum(0), torch.randn(4096, 2)),
    "mean of planes": (lambda x: x.mean((0, 1, 2)), torch.randn(16, 64, 7, 28)),
    "variance": (lambda x: torch.var_mean(x, 0), torch.randn(2003, 13)),
    "extremes": (lambda x: (x.amax(0), x.amin(0)), torch.randn(1000, 5).round()),
    "logsumexp": (lambda x: x.logsumexp(0), torch.randn(1501, 7)),
    "softmax": (lambda x: x.softmax(0), torch.randn(1501, 7)),
    "of bfloat16": (lambda x: x.logsumexp(0), torch.randn(1000, 28).bfloat16()),
    "product": (lambda x: (1 + x * 1e-3).prod(0), torch.randn(1000, 13)),
    "any and all": (lambda x: ((x > 3).any(0), (x > -5).all(0)), torch.randn(999, 6)),
    "integers": (lambda x: (x.sum(0), x.amax(0)), torch.arange(9000).view(3000, 3) % 7),
    "of each plane": (lambda x: x.sum(1), torch.randn(5, 801, 3)),
    "scaled columns": (lambda x: (x * x[0]).sum(0), torch.randn(2000, 3)),
    "padded columns": (lambda x: F.pad(x.tanh(), (3, 4)).sum(0), torch.randn(70, 44)),
    "positions": (lambda x: x.argmax(0), torch.randn(2000, 3)),
    "places in the sum": (lambda x: (x * torch.arange(3)).sum(0), torch.randn(2000, 3)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FEW_COLUMNS)
def test_reductions_of_few_columns_are_those_of_eager(name: str) -> None:
    function, x = FEW_COLUMNS[name]
    assert_as_eager(compiled(function), function, [x])


@pytest.mark.parametrize("columns", [63, 64, 65, 128, 300])
def test_columns_are_reduced_in_blocks_of_a_constant_number_of_lanes(columns: int) -> None:
    """The last block begins within the one before, if there are not as many left."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax(0), x.argmax(0), x.sum(0)

    x = torch.randn(601, columns)
    text = kernels_as_eager(function, [x])
    assert f"const int lanes = {min(columns, 64)};" in text
    assert (f"from = index_min(block, {columns} - 64);" in text) == (columns in (65, 300))


def test_columns_that_are_overwritten_are_visited_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).div_(x.amax(0)).add_(1)

    text = kernels_as_eager(function, [torch.rand(601, 65) + 1])
    assert "index_min(block" not in text
    assert "block(Constant<64>());" in text


@pytest.mark.parametrize("name", ["amax", "sum", "logsumexp"])
def test_a_special_number_in_any_row_reaches_its_column(name: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return getattr(x, name)(0)

    once = compiled(function)
    for value, row in product((torch.nan, torch.inf, -torch.inf), (0, 5, 2999, 3000)):
        x = torch.randn(3001, 3)
        x[row, 1] = value
        with about(value=value, row=row):
            assert_as_eager(once, function, [x])


@pytest.mark.parametrize("name", ["sum", "logsumexp", "of bfloat16", "softmax", "variance"])
def test_several_rows_of_few_columns_fill_a_vector(tmp_path: Path, name: str) -> None:
    function, x = FEW_COLUMNS[name]
    text = kernels(function, x)
    assert "l < 1 * lanes" in text  # the last two rows are joined
    single_rows = "for (int l = 0; l < lanes; ++l) {"
    assert [loop for loop in scalar_loops(text, tmp_path) if loop.strip() != single_rows] == []
    assert "* lanes" not in kernels(function, x, off=("codegen.rows",))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *product(["argmax"], [torch.float32, torch.bfloat16, torch.int64, torch.float64]),
        *[("argmin", torch.int64), ("max", torch.float64), ("max", torch.int64)],
        *[("min", torch.float32), ("min", torch.bfloat16)],
    ],
)
def test_argmax_along_columns_is_vectorized(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    x = (torch.randn(20, 130) * 3).round().to(dtype)
    if dtype.is_floating_point:
        x[3, 5], x[7, 5], x[:, 9], x[:, 10] = torch.nan, torch.nan, -torch.inf, torch.inf

    def function(x: torch.Tensor) -> Any:
        return getattr(x, name)(0)

    assert scalar_loops(kernels_as_eager(function, [x], exact=True), tmp_path) == []


COLUMNS_KEPT: dict[str, tuple[Callable[..., Any], tuple[int, ...], int]] = {
    # what the columns are compared with, size, calls of `exp` in the code
    "mean": (lambda e: e / e.mean(0), (200, 130), 1),
    "mean of tall columns": (lambda e: e / e.mean(0), (4096, 70), 2),
    "mean and variance": (lambda e: (e / e.mean(0)) * (e / e.mean(0)).square().sum(0), (90, 65), 1),
    "a sum of cheap values": (lambda e: ((f := e + 1) / f.sum(0), f.neg()), (50, 100), 1),
    "batch": (lambda e: e / e.sum(1, keepdim=True), (3, 40, 77), 1),
}


@pytest.mark.parametrize("name", COLUMNS_KEPT)
def test_expensive_values_of_columns_are_computed_once_if_they_fit(name: str) -> None:
    rest, size, calls = COLUMNS_KEPT[name]

    def function(x: torch.Tensor) -> Any:
        return rest(x.sin().exp())

    x = torch.randn(size)
    text = kernels_as_eager(function, [x])
    assert text.count(" exp_(") == calls
    assert "int lanes" in text


def test_positions_along_an_axis_that_is_repeated_in_memory_are_found_in_lanes() -> None:
    """Lanes along the repeated axis read one number, but positions then run in order."""
    x = torch.randn(1, 200).expand(64, 200)
    rows = torch.arange(64.0).unsqueeze(1)
    text = kernels_as_eager(lambda x, y: ((x * y).argmax(0), (x * y).amax(0)), [x, rows])
    assert "for (int l = 0; l < lanes; ++l)" in text


def test_lanes_run_along_a_short_axis_and_the_one_around_it() -> None:
    """Lanes along the longer axis of the two read every third element."""
    x = torch.randn(64, 41, 3).permute(2, 1, 0)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.logsumexp(2), x.argmax(2), x.var(2) * x[:, :, 5]

    text = kernels_as_eager(function, [x])
    assert "block < 123;" in text
    assert "i1*3" not in text


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 9])
def test_few_points_of_one_result_have_no_vectors(rows: int) -> None:
    """With vectors, g++ 12 crashes on the maximum of 2 x 2 integers that are one row in memory."""
    x = torch.tensor([[-3, 7]]).expand(rows, 2)
    y = torch.arange(rows).unsqueeze(1)
    text = kernels_as_eager(lambda x, y: ((x + y).amax(), (x * y).amin((0, 1))), [x, y])
    assert ("#pragma omp simd" in text) == (rows > 8)
