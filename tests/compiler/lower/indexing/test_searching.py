"""Searches in sorted rows: the places that eager finds, whatever the row ends in."""

from __future__ import annotations

import pytest
import torch
from externs import reasons
from judge import assert_as_eager, compiled
from programs import f32

INF, NAN = float("inf"), float("nan")
BOUNDS = torch.tensor([-INF, -1.0, -1.0, 0.0, 0.5, 2, 2, 2, 9, INF, NAN])
VALUES = torch.tensor([[-INF, INF, NAN, -1, -1.5, 2], [0, -0.0, 1, 9, 10, 3]])


def searches(x: torch.Tensor, bounds: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    """One row for all, a row for each, an order given apart, whole numbers, nothing."""
    found, order = rows.sort()
    some = x[:, :3].contiguous()
    return [
        torch.bucketize(x, bounds),
        torch.bucketize(x, bounds, right=True, out_int32=True),
        torch.bucketize(2.0, bounds),
        torch.bucketize(x, bounds[:0]),
        torch.bucketize(x.nan_to_num(0, 1, -1).int(), torch.tensor([1, 3, 5])),
        torch.searchsorted(found, some, side="right"),
        torch.searchsorted(rows, some, sorter=order),
    ]


def test_a_search_finds_what_eager_finds() -> None:
    torch._dynamo.reset()
    inputs = [VALUES, BOUNDS, f32(2, 9)]
    assert_as_eager(compiled(searches), searches, inputs, exact=True)
    left = reasons(searches, *inputs)
    assert not {op for op in left if "search" in op or "bucket" in op}


def test_a_search_in_a_long_row_takes_no_time_to_compile() -> None:
    row = torch.arange(100_000.0)
    torch._dynamo.reset()
    x = torch.tensor([-1.0, 0.0, 77_777.5, 99_999.0, 1e9])
    assert compiled(torch.bucketize)(x, row).tolist() == [0, 0, 77_778, 99_999, 100_000]


def test_a_row_of_unknown_length_is_searched_by_aten() -> None:
    torch._dynamo.reset()
    search = compiled(torch.bucketize, dynamic=True)
    for length in (5, 9):
        assert search(torch.tensor([2.5]), torch.arange(float(length))).item() == 3


@pytest.mark.parametrize("size", [(5, 3), (11, 7)], ids=str)
def test_windows_of_different_lengths_are_pooled_as_in_eager(size: tuple[int, int]) -> None:
    def pool(x: torch.Tensor, volume: torch.Tensor) -> object:
        return (
            torch.nn.functional.adaptive_avg_pool2d(x, size),
            torch.nn.functional.adaptive_max_pool2d(x, size, return_indices=True),
            torch.nn.functional.adaptive_max_pool3d(volume, (3, *size), return_indices=True),
            torch.nn.functional.adaptive_avg_pool3d(volume, (2, *size)),
            torch.nn.functional.max_pool3d(volume, 3, 2, 1),
        )

    x, volume = f32(2, 3, 8, 7), f32(2, 2, 5, 9, 7)
    x[0, 0, 2, 3], x[0, 1] = NAN, -INF
    torch._dynamo.reset()
    assert_as_eager(compiled(pool), pool, [x, volume])
    assert reasons(pool, x, volume) == {}
