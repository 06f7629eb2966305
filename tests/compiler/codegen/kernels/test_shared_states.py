"""cummax and cummin find the extreme and its position in one loop, with one state for both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cpp_kernels import kernels
from judge import assert_as_eager, assert_same, compiled, gradients
from torch import Tensor

NAN, INF = float("nan"), float("inf")
ROWS = torch.tensor(
    [
        [1.0, 3.0, 3.0, 2.0, 4.0],
        [-INF, -INF, 0.0, -0.0, 0.0],
        [INF, 1.0, INF, NAN, 2.0],
        [NAN, NAN, 1.0, INF, NAN],
    ]
)


def running(x: Tensor) -> Any:
    """The running extremes along both axes, where the loops are rows and lanes."""
    return [function(x, dim) for function in (torch.cummax, torch.cummin) for dim in (0, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_the_last_of_equal_elements_is_found(dtype: torch.dtype) -> None:
    rows = ROWS if dtype.is_floating_point else ROWS.nan_to_num(9, 8, -8)
    x = torch.cat([rows, rows.flip(1), rows], 1).to(dtype)
    smallest = torch.full((2, 15), torch.iinfo(dtype).min) if dtype == torch.int64 else x
    assert_as_eager(compiled(running, dynamic=False), running, [x], exact=True)
    assert_as_eager(compiled(running, dynamic=False), running, [smallest], exact=True)


def test_both_results_come_from_one_loop_with_one_state() -> None:
    text = kernels(lambda x: torch.cummax(x, 1), torch.ones(4, 30))
    assert text.count("best_") == text.count("best_cummax_cumargmax")
    assert text.count("for (int64_t r0") == 1


def test_scans_of_different_values_keep_their_states() -> None:
    def function(x: Tensor) -> Any:
        return torch.cummax(x, 1).indices, torch.cummax(x * 2 - 1, 1).values, x.cumsum(1)

    x = torch.randn(20, 100)
    assert_as_eager(compiled(function, dynamic=False), function, [x])


def test_a_scan_of_another_scan_runs_after_it() -> None:
    def function(x: Tensor) -> Any:
        return torch.cummin(torch.cummax(x, 1).values.flip(1), 1), x.cumsum(1).cumsum(1)

    x = torch.randn(20, 100)
    assert_as_eager(compiled(function, dynamic=False), function, [x])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scan", [torch.cummax, torch.cummin])
@pytest.mark.parametrize("times", [2, 3])
def test_of_equal_scans_for_a_position_one_has_the_state(
    scan: Any, dtype: torch.dtype, times: int
) -> None:
    """Two calls of one scan have a position each, to be saved."""

    def function(x: Tensor) -> Any:
        return [scan(x, -2).values, *(scan(x, -2).values.relu() for _ in range(times - 1))]

    def given() -> list[Tensor]:
        values = torch.tensor([INF, NAN, -0.0, 0.0, 6e-8, -1.5, -INF, 1.0, 65504.0, 0.1])
        return [values.to(dtype).repeat(113)[:1122].reshape(17, 66)[..., ::2].requires_grad_()]

    assert_same(gradients(compiled(function, dynamic=False), given()), gradients(function, given()))
