"""Loads that are contiguous across rows are read in blocks, for all sizes, dtypes and strides."""

from __future__ import annotations

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, assert_same, compiled
from property_settings import property_settings
from torch.nn import functional as F

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float64, torch.uint8)


def filled(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """All numbers different, as far as the dtype allows."""
    return torch.arange(torch.Size(size).numel()).reshape(size).remainder(251).to(dtype)


@property_settings(8)
@given(
    rows=st.sampled_from([1, 7, 8, 16, 17, 33, 48]),
    columns=st.sampled_from([8, 9, 64, 65, 130]),
    dtype=st.sampled_from(DTYPES),
    batch=st.sampled_from([None, 1, 3]),
)
def test_elements_of_a_transposed_operand_are_read_correctly(
    rows: int, columns: int, dtype: torch.dtype, batch: int | None
) -> None:
    torch._dynamo.reset()
    head = () if batch is None else (batch,)
    x, y = filled((*head, rows, columns), dtype), filled((*head, columns, rows), dtype)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x == y.mT, x, y.mT)

    assert_as_eager(compiled(function), function, [x, y], exact=True)


def test_one_kernel_reads_transposed_operands_of_many_sizes() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y.t() * 2

    f = compiled(function, dynamic=True)
    for rows, columns in ((16, 64), (15, 63), (17, 65), (5, 3), (40, 2)):
        x = filled((rows, columns), torch.float32)
        y = filled((columns, rows), torch.float32)
        assert_same(f(x, y), function(x, y), exact=True)


def test_only_loads_that_are_contiguous_across_rows_are_read_in_blocks() -> None:
    square, row = torch.ones(32, 32), torch.ones(1, 32)
    assert "load_tile<64>(arg0_1_in + " in kernels(lambda x, y: x + y.t(), square, square)
    assert "load_tile" not in kernels(lambda x, y: x + y, square, square)
    assert "load_tile" not in kernels(lambda x, y: x + y.t(), square, row)
    assert "load_tile" not in kernels(lambda x, y: x + y.t(), torch.ones(32, 3), torch.ones(3, 32))
    without = kernels(lambda x, y: x + y.t(), square, square, off=("codegen.tile",))
    assert "load_tile" not in without


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "block"),
    [
        (64, 2050, torch.float32, 16),
        (63, 1025, torch.float64, 16),
        (2050, 64, torch.float32, 64),
        (1100, 1100, torch.float32, 64),
        (64, 2050, torch.bfloat16, 64),
    ],
)
def test_of_rows_that_are_far_apart_few_are_read_at_a_time(
    rows: int, columns: int, dtype: torch.dtype, block: int
) -> None:
    """Unless the results are far apart too, or few numbers fill no vector."""
    text = kernels_as_eager(
        lambda y: y.t().contiguous() * 2, [filled((rows, columns), dtype)], exact=True
    )
    assert f"load_tile<{block}>(" in text


def test_a_guarded_load_is_not_read_ahead() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + F.pad(y, (1, 0)).t()

    x, y = filled((33, 32), torch.float32), filled((32, 32), torch.float32)
    assert "load_tile" not in kernels_as_eager(function, [x, y], exact=True)


def test_a_reduction_does_not_read_along_one_axis_and_write_along_another() -> None:
    def softmax(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(1)

    wide, planes = torch.randn(200, 96).t(), torch.randn(9, 40, 300).permute(2, 1, 0)
    for x in (wide, planes):
        torch._dynamo.reset()
        text = kernels_as_eager(softmax, [x])
        assert "load_tile<" in text
        assert text.count('extern "C" int cpp_') == 6
    for x in (wide.contiguous(), planes.contiguous(), torch.randn(30, 200).t()):
        assert kernels(softmax, x).count('extern "C" int cpp_') == 2


def test_a_normalised_image_with_channels_last_is_written_in_blocks() -> None:
    def normalised(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.permute(0, 2, 3, 1), (160,))

    x = torch.randn(2, 160, 9, 11)
    assert "load_tile<" in kernels_as_eager(normalised, [x])


def test_statistics_do_not_keep_a_norm_from_the_order_in_which_its_result_is_stored() -> None:
    """Five reads, of which four are the same for a channel, and a result with another layout."""

    def normalised(x: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        mean, var, weight, bias = (s[:, None, None] for s in statistics)
        return ((x - mean) * (var + 1e-5).rsqrt() * weight + bias).relu().contiguous()

    x = torch.randn(2, 32, 20, 70).contiguous(memory_format=torch.channels_last)
    assert "load_tile<" in kernels_as_eager(normalised, [x, *(torch.rand(32) for _ in range(4))])
