"""What depends on the column alone is computed once, if vector lanes run across rows."""

from __future__ import annotations

from typing import Any

import torch
from cpp_kernels import kernels
from judge import assert_as_eager, compiled
from torch import Tensor


def normalised(x: Tensor, w: Tensor) -> Any:
    """Columns divided by what is computed from their sums."""
    return x / (x.sum(0) * w / 7 + 3), x.abs().sum(0)


def test_a_division_by_column_is_outside_of_the_loop_over_rows() -> None:
    text = kernels(lambda x, w: x * (x.sum(0) / w / 3), torch.ones(90, 128), torch.ones(128))
    before, after = text.rsplit("for (int64_t r0", 1)
    assert " / 3.0f" in before
    assert " / " not in after


def test_results_are_exactly_those_of_eager() -> None:
    x = torch.randint(-9, 10, (90, 133), generator=torch.Generator().manual_seed(0)).float()
    inputs = [x, torch.arange(1.0, 134.0)]
    assert_as_eager(compiled(normalised, dynamic=False), normalised, inputs, exact=True)
    halves = [t.bfloat16() for t in inputs]
    assert_as_eager(compiled(normalised, dynamic=False), normalised, halves)
    narrow = [x[:, :20].contiguous(), inputs[1][:20]]  # several rows at once
    assert_as_eager(compiled(normalised, dynamic=False), normalised, narrow, exact=True)


def test_columns_of_length_zero_and_of_dynamic_length() -> None:
    def function(x: Tensor, w: Tensor) -> Any:
        return x / (w * w + 1), (x + w * 2 + 1).sum(0)

    compiled_function = compiled(function, dynamic=True)
    for rows in (4, 90, 0):
        inputs = [torch.ones(rows, 80), torch.arange(80.0)]
        assert_as_eager(compiled_function, function, inputs, exact=True)


def test_an_index_that_differs_between_columns_is_still_checked() -> None:
    def function(x: Tensor, table: Tensor, i: Tensor) -> Tensor:
        return (x * (table[i] / 3 + 1)).sum(0)

    inputs = [torch.ones(90, 128), torch.ones(5), torch.arange(128) % 5]
    assert_as_eager(compiled(function, dynamic=False), function, inputs)
