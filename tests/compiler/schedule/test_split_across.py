"""On a CPU, kernels that reduce do not read or store across cache lines where others can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels_as_eager
from stages import capture
from torch.nn import functional as F

LAST = torch.channels_last
SIZE = (8, 16, 24, 24)
Function = Callable[..., Any]


def normed(x: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(x, (0, 2, 3), keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5)


def in_both_layouts(x: torch.Tensor, y: torch.Tensor) -> Any:
    result = normed(x).relu()
    return result.contiguous(), result <= 0


def beside_another_layout(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (normed(x) + y).relu().contiguous()


def gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
    """That of a batch norm and a relu, where the gradient y has another layout."""
    passed = torch.where(x <= 0, 0, y)
    shift, scale = (t.mean((0, 2, 3), keepdim=True) for t in (passed, passed * x))
    return x * scale + (passed - shift)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    x, y = (torch.randn(SIZE, generator=drawn) for _ in range(2))
    return x.to(memory_format=LAST), y


def kinds(function: Function, *given: torch.Tensor) -> list[set[str]]:
    """The types of the nodes of each kernel whose loops visit all elements."""
    (schedule,) = capture(function, *given, dynamic=False).schedules
    return [{type(n).__name__ for n in kernel.nodes} for kernel in schedule.kernels()]


APART: dict[str, tuple[Function, list[set[str]]]] = {
    "stores in both layouts": (in_both_layouts, [{"Reduction", "Pointwise"}, {"Pointwise"}]),
    "a sum with another layout": (
        beside_another_layout,
        [{"Reduction", "Pointwise"}, {"Pointwise"}],
    ),
    "a gradient of another layout": (gradient, [{"Pointwise"}, {"Reduction", "Pointwise"}]),
}


@pytest.mark.parametrize("name", APART)
def test_two_layouts_meet_in_a_kernel_that_does_not_reduce(name: str) -> None:
    function, expected = APART[name]
    assert kinds(function, *inputs()) == expected
    text = kernels_as_eager(function, list(inputs()))
    assert "load_tile<" in text


@pytest.mark.parametrize("name", APART)
def test_with_one_layout_there_is_one_kernel(name: str) -> None:
    function, _ = APART[name]
    x, y = inputs()
    turned = [x, y.to(memory_format=LAST)]
    if "contiguous" in function.__code__.co_names:
        turned = [x.contiguous(), y]
    assert kinds(function, *turned) == [{"Reduction", "Pointwise"}]


def of_every(step: int, rows: int = 150, columns: int = 40) -> torch.Tensor:
    """Columns of which each `step`-th element of memory belongs to."""
    return torch.randn(columns, rows, step)[..., 0].t()


def distances(x: torch.Tensor) -> torch.Tensor:
    return (x - x.amax(0)).contiguous()


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_columns_in_few_cache_lines_are_not_stored_across_them(step: int) -> None:
    assert kinds(distances, of_every(step)) == [{"Reduction"}, {"Pointwise"}]
    kernels_as_eager(distances, [of_every(step)])


def test_columns_in_a_cache_line_for_each_element_are_reduced_where_they_are_stored() -> None:
    assert kinds(distances, of_every(16)) == [{"Reduction", "Pointwise"}]


def test_few_elements_and_gathers_are_not_stored_for_a_reduction() -> None:
    x, y = (t[:1] for t in inputs())
    assert kinds(gradient, x, y) == [{"Reduction"}, {"Pointwise"}]
    places = torch.arange(24).flip(0).expand(SIZE)

    def gathered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        both = y.gather(-1, places) + y
        return both - both.sum(-1, keepdim=True)

    assert kinds(gathered, *inputs()) == [{"Reduction", "Pointwise"}]


def test_each_buffer_that_lanes_touch_across_cache_lines_counts() -> None:
    """Two are read and stored along columns here, and one along rows."""

    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return (x * y * z.t()).sum(0)

    matrix = torch.ones(300, 200)
    text = kernels_as_eager(function, [matrix, matrix * 2, torch.ones(200, 300)])
    assert "int lanes" in text
    text = kernels_as_eager(function, [matrix, torch.ones(200, 300).t(), torch.ones(200, 300)])
    assert "int lanes" not in text


def test_windows_are_not_computed_across_the_layout_of_their_image() -> None:
    """Their kernel reads nine elements for one. The copy transposes blocks of their results."""
    x = inputs()[0]
    pooled = lambda x: F.max_pool2d(x, 3, 2, 1).contiguous()  # noqa: E731 # short
    assert len(kinds(pooled, x)) == 2
    assert "load_tile<" in kernels_as_eager(pooled, [x])
    few = lambda x: (x.sin() + x[..., :1]).contiguous()  # noqa: E731 # short
    assert len(kinds(few, x)) == 1
    assert len(kinds(lambda x: F.max_pool2d(x, 3, 2, 1), x)) == 1


def test_a_value_and_its_copy_in_another_layout_have_kernels_of_their_own() -> None:
    """A kernel transposes blocks of what it reads, and would scatter one of two results."""
    x = inputs()[0]

    def copied(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.silu(x)
        return y, y.contiguous()

    assert len(kinds(copied, x)) == 2
    assert "load_tile<" in kernels_as_eager(copied, [x])
    assert len(kinds(lambda x: (F.silu(x), x + 1), x)) == 1
    short = torch.randn(3000, 3)
    assert len(kinds(lambda x: (x + 1, (x + 1).t().contiguous()), short)) == 1
