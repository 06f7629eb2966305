"""fuse.split_short_rows: short rows that are far apart are reduced in two steps on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels_as_eager
from judge import assert_as_eager, compiled
from stages import capture

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Reduction

Function = Callable[[torch.Tensor], Any]


def loops(function: Function, x: torch.Tensor, *off: str) -> list[tuple[list[int], list[int]]]:
    """The outer and inner sizes of the reductions of a schedule."""
    (schedule,) = capture(function, x, toggles=Toggles.parse(off), dynamic=False).schedules
    nodes = [node for kernel in schedule.kernels() for node in kernel.nodes]
    return [
        ([size.constant or 0 for size in n.out.size], [a.size.constant or 0 for a in n.reduced])
        for n in nodes
        if isinstance(n, Reduction)
    ]


def test_the_rows_at_a_place_are_reduced_before_the_places_of_a_row() -> None:
    x = torch.ones(512, 257, 7)
    assert loops(lambda x: x.sum((0, 2)), x) == [([257, 7], [512]), ([257], [7])]
    off = loops(lambda x: x.sum((0, 2)), x, "fuse.split_short_rows")
    assert off == [([257], [512, 7])]


def test_several_axes_around_the_results_are_reduced_together() -> None:
    found = loops(lambda x: x.amax((0, 1, 3)), torch.ones(16, 64, 28, 28))
    assert found == [([28, 28], [16, 64]), ([28], [28])]


def test_the_order_in_memory_decides_not_that_of_the_axes() -> None:
    x = torch.ones(7, 512, 257).permute(1, 2, 0)
    assert loops(lambda x: x.sum((0, 2)), x) == [([257], [512, 7])]
    assert loops(lambda x: x.sum((0, 1)), x) == [([7], [512, 257])]
    y = torch.ones(512, 257, 7).permute(2, 1, 0)
    assert loops(lambda y: y.sum((0, 2)), y) == [([257, 7], [512]), ([257], [7])]


WHOLE: dict[str, tuple[Function, tuple[int, ...]]] = {
    "long rows": (lambda x: x.sum((0, 2)), (64, 128, 65)),
    "few rows": (lambda x: x.sum((0, 2)), (3, 257, 28)),
    "few results": (lambda x: x.sum((0, 2)), (512, 7, 28)),
    "few results for places": (lambda x: x.sum((0, 2)), (512, 9, 7)),
    "one row for each result": (lambda x: x.sum(2), (64, 128, 7)),
    "no results inside": (lambda x: x.sum((1, 2)), (128, 64, 7)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_reduction_stays_whole_if_that_is_no_slower(name: str) -> None:
    function, size = WHOLE[name]
    (found,) = loops(function, torch.ones(size))
    assert found[1] == loops(function, torch.ones(size), "fuse.split_short_rows")[0][1]


def shifted(x: torch.Tensor) -> torch.Tensor:
    return (x - x[0, :, :1]).exp().sum((0, 2))


REPEATED: dict[str, tuple[tuple[int, ...], list[int]]] = {
    "rows shorter than a vector": ((512, 257, 7), [257 * 7]),
    "rows of a vector and a part": ((64, 64, 28), [64 * 28]),
    "whole vectors": ((64, 64, 32), []),
    "few rows": ((7, 64, 28), []),
}


@pytest.mark.parametrize("name", REPEATED)
def test_an_operand_that_differs_between_results_is_repeated_along_rows(name: str) -> None:
    size, wanted = REPEATED[name]
    (schedule,) = capture(shifted, torch.ones(size), dynamic=False).schedules
    found = {n.name: (n, k) for k in schedule.kernels() for n in k.nodes}
    repeated = [name for name in found if name.endswith("_operand")]
    assert [found[name][0].out.numel.constant for name in repeated] == wanted
    assert all(name in found[name][1].stored for name in repeated)  # read by another kernel


def test_short_rows_stay_whole_if_an_operand_that_differs_between_results_is_not_repeated() -> None:
    assert loops(shifted, torch.ones(512, 257, 7)) == [([257, 7], [512]), ([257], [7])]
    assert loops(shifted, torch.ones(7, 257, 7)) == [([257], [7, 7])]
    assert loops(shifted, torch.ones(64, 64, 16)) == [([64, 16], [64]), ([64], [16])]
    (schedule,) = capture(
        shifted,
        torch.ones(64, 64, 28),
        toggles=Toggles.parse(("fuse.split_short_rows:1",)),
        dynamic=False,
    ).schedules
    assert not [n for k in schedule.kernels() for n in k.nodes if n.name.endswith("_operand")]


KINDS: dict[str, Function] = {
    "sum": lambda x: x.sum((0, 2)),
    "amax": lambda x: x.amax((0, 2)),
    "amin": lambda x: x.amin((0, 2)),
    "mean and var": lambda x: torch.var_mean(x, (0, 2)),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, (0, 2)),
    "logsumexp": lambda x: x.logsumexp((0, 2)),
    "two operands": lambda x: ((x - x[0, :, :1]) * x[1, :, 1:2]).sum((0, 2)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_those_of_eager(kind: str, dtype: torch.dtype) -> None:
    if not dtype.is_floating_point and kind in ("mean and var", "norm"):
        pytest.skip("eager has none for integers")
    x = (torch.randn(40, 33, 7, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    kernels_as_eager(KINDS[kind], [x])


def test_sizes_may_be_symbols_and_rows_empty() -> None:
    once = compiled(lambda x: x.sum((0, 2)), dynamic=True)
    for size in ((40, 33, 7), (41, 65, 9), (0, 33, 7), (40, 0, 7), (40, 33, 0)):
        assert_as_eager(once, lambda x: x.sum((0, 2)), [torch.ones(size)])


def test_a_special_number_anywhere_reaches_its_result() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax((0, 2)), x.sum((0, 2)), x.amin((0, 2))

    once = compiled(function)
    for value in (torch.nan, torch.inf, -torch.inf):
        x = torch.rand(40, 33, 7)
        x[39, 32, 6] = x[0, 0, 0] = value
        assert_as_eager(once, function, [x])
