"""argmax and argmin over contiguous rows compare with the extreme. Ties and NaN are as in eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, scalar_loops
from judge import assert_as_eager, compiled
from stages import capture

from tcdebug.compiler.ir.graph import Reduction

NAN, INF = float("nan"), float("inf")


def kinds(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    """The kinds of the reductions of a function, after the schedule."""
    (schedule,) = capture(function, *inputs).schedules
    nodes = [n for kernel in schedule.kernels() for n in kernel.nodes]
    return [n.kind for n in nodes if isinstance(n, Reduction)]


def test_the_place_of_a_maximum_is_a_minimum_of_places() -> None:
    assert kinds(lambda x: x.argmax(-1), torch.ones(4, 100)) == ["max", "min"]
    assert kinds(lambda x: x.argmin(), torch.ones(40, 100)) == ["min", "min"]


def test_a_maximum_beside_it_is_shared() -> None:
    assert kinds(lambda x: torch.max(x, -1), torch.ones(4, 100)) == ["max", "min"]
    assert kinds(lambda x: (x.amax(-1), x.argmax(-1)), torch.ones(4, 100)) == ["max", "min"]


def test_short_rows_columns_and_indirect_reads_stay_as_they_are() -> None:
    assert kinds(lambda x: x.argmax(-1), torch.ones(100, 10)) == ["argmax"]
    assert kinds(lambda x: x.argmax(0), torch.ones(100, 100)) == ["argmax"]
    places = torch.zeros(4, 100, dtype=torch.int64)
    assert kinds(lambda x, i: x.gather(1, i).argmax(-1), torch.ones(4, 100), places) == ["argmax"]


def test_both_sweeps_are_vectorized(tmp_path: Path) -> None:
    text = kernels(lambda x: torch.max(x, -1), torch.ones(40, 992))
    assert text.count("#pragma omp simd") == 2
    assert scalar_loops(text, tmp_path) == []


ROWS = torch.tensor(
    [
        [1.0, 3.0, 3.0, 2.0],
        [-INF, -INF, -INF, -INF],
        [INF, 1.0, INF, NAN],
        [NAN, NAN, 1.0, INF],
        [-0.0, 0.0, -0.0, 0.0],
        [5.0, 4.0, 5.0, 5.0],
    ]
)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("function", [torch.argmax, torch.argmin, torch.max, torch.min])
def test_the_first_of_equal_elements_is_found(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    rows = ROWS if dtype.is_floating_point else ROWS.nan_to_num(9, 8, -8)
    x = torch.cat([rows[:, :1].expand(-1, 30), rows, rows], 1).to(dtype)

    def of_rows(x: torch.Tensor) -> Any:
        return function(x, -1)

    def of_all(x: torch.Tensor) -> Any:
        return torch.argmax(x), torch.argmin(x[:2])

    assert_as_eager(compiled(of_rows), of_rows, [x], exact=True)
    torch._dynamo.reset()
    assert_as_eager(compiled(of_all), of_all, [x], exact=True)


def test_places_of_several_axes_and_computed_elements_are_right() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.argmax(), x.flatten(1).argmin(-1), (x.exp() - 1).transpose(0, 2).argmax(0)

    x = torch.randn(7, 11, 13)
    assert_as_eager(compiled(function), function, [x], exact=True)
