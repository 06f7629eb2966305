"""Searches in sorted rows give eager's positions, whatever the row ends with."""

from __future__ import annotations

import torch
from externs import compiled_with_reasons
from judge import assert_as_eager, compiled
from programs import f32

INF, NAN = float("inf"), float("nan")
BOUNDS = torch.tensor([-INF, -1.0, -1.0, 0.0, 0.5, 2, 2, 2, 9, INF, NAN])
VALUES = torch.tensor([[-INF, INF, NAN, -1, -1.5, 2], [0, -0.0, 1, 9, 10, 3]])


def searches(x: torch.Tensor, bounds: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
    """One row for all values, one row each, a sorter, integers, no values."""
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
    once, left = compiled_with_reasons(searches)
    assert_as_eager(once, searches, inputs, exact=True)
    assert not {op for op in left if "search" in op or "bucket" in op}


def test_a_search_in_a_long_row_compiles_quickly() -> None:
    row = torch.arange(100_000.0)
    torch._dynamo.reset()
    x = torch.tensor([-1.0, 0.0, 77_777.5, 99_999.0, 1e9])
    assert compiled(torch.bucketize)(x, row).tolist() == [0, 0, 77_778, 99_999, 100_000]


def test_a_row_of_unknown_length_is_searched_by_aten() -> None:
    torch._dynamo.reset()
    search = compiled(torch.bucketize, dynamic=True)
    for length in (5, 9):
        assert search(torch.tensor([2.5]), torch.arange(float(length))).item() == 3
