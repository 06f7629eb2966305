"""Launches of several kernels with one call, and memory that is kept between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import compiled
from programs import f32
from stages import capture

from tcdebug.compiler.codegen.cpp.source import write_cpp
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource, WrapperWriter
from tcdebug.compiler.gate.gate import Gate


def wrappers(function: Callable[..., Any], *inputs: Any, **options: Any) -> list[WrapperSource]:
    """The wrappers of all graphs of a function."""
    made = []
    for schedule in capture(function, *inputs, **options).schedules:
        gate = Gate()
        calls = write_cpp(schedule.kernels(), schedule.graph.buffers(), gate).calls
        made.append(WrapperWriter(schedule, calls, gate).write())
    return made


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Kernels with different loops, views between them, and memory that is reused."""
    rows = x.softmax(1)
    sums = (rows * 3 + x.sum(0)).cumsum(1)
    return rows.t(), sums.view(-1), y.exp().sum(0), (y + 1).prod(1), x[:2].amax(0), sums.sum(0)


def test_kernels_without_an_aten_call_between_them_are_one_call() -> None:
    inputs = f32(8, 6), f32(5, 7)
    (wrapper,) = wrappers(several, *inputs)
    (launch,) = wrapper.launches
    assert len(launch.kernels) > 3
    assert wrapper.text.count("status :=") == 1
    assert len(set(launch.given)) == len(launch.given)
    torch.testing.assert_close(compiled(several)(*inputs), several(*inputs))
    dynamic = compiled(several, dynamic=True)
    torch.testing.assert_close(dynamic(*inputs), several(*inputs))
    torch.testing.assert_close(dynamic(f32(3, 2), f32(4, 9)), several(f32(3, 2), f32(4, 9)))


def test_an_aten_call_ends_a_launch() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = x.sum(0).expand(4, 4) @ x.cumsum(1)
        return product.sum(0), product.cumsum(1)

    (wrapper,) = wrappers(f, f32(4, 4))
    assert [len(launch.kernels) for launch in wrapper.launches] == [2, 2]
    first, product, second = (wrapper.text.index(t) for t in ("launch_0(", "mm", "launch_1("))
    assert first < wrapper.text.index("(", product) < second


@pytest.mark.parametrize(("rows", "launches"), [(64, 1), (4096, 0)])
def test_large_dead_buffers_are_freed_before_new_allocations(rows: int, launches: int) -> None:
    """A dead buffer of 8 MiB is not kept until a launch ends."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(1).cumsum(0).t().cumsum(1).sum(0)

    (wrapper,) = wrappers(chain, f32(rows, 512))
    assert len(wrapper.launches) == launches


def test_an_error_in_a_launch_names_the_kernel_that_found_it() -> None:
    def f(x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.cumsum(1), x[places].sum(0)

    run = compiled(f)
    x = f32(4, 6)
    torch.testing.assert_close(run(x, torch.tensor([1, 3])), f(x, torch.tensor([1, 3])))
    with pytest.raises(IndexError, match=r"found by cpp_red_sum_1"):
        run(x, torch.tensor([1, 4]))


def test_small_kernels_have_no_parallel_region() -> None:
    def text(*sizes: int, **options: Any) -> str:
        (schedule,) = capture(lambda x: x.exp().sum(-1), f32(*sizes), **options).schedules
        calls = write_cpp(schedule.kernels(), schedule.graph.buffers(), Gate()).calls
        return "".join(call.source for call in calls.values())

    assert "omp parallel" not in text(64, 64)
    assert "omp parallel" in text(1024, 64)
    assert "omp parallel" in text(64, 64, dynamic=True)
