"""Scatters that share the loop of a kernel on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from programs import f32
from stages import capture
from torch import Tensor
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.ir.graph import Scatter
from tcdebug.compiler.schedule.kernel import Kernel

Function = Callable[[Tensor, Tensor, Tensor], object]


def put(sums: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return sums.index_put((places,), values, accumulate=True)


def for_both_ends(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    sums = x.new_zeros(900, 64)
    return put(sums, i, x * 2) + put(sums, j, x * 3)


def one_after_the_other(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return put(put(x.new_zeros(900, 64), i, x * 2), j, x * 3)


def of_elements_and_of_rows(x: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    return put(x.new_zeros(900, 64), i, x), put(x.new_zeros(900), i, x.sum(1))


def together(function: Function) -> list[int]:
    """The number of scatters in each kernel that has any."""

    def program() -> tuple[Function, tuple[Tensor, ...]]:
        return function, (cuda(5000, 64), *(cuda(5000, dtype=torch.int64) for _ in range(2)))

    kernels = triton_of(program).calls.values()
    counts = [sum(isinstance(n, Scatter) for n in call.kernel.nodes) for call in kernels]
    return [count for count in counts if count]


def test_sums_of_what_both_read_are_one_kernel() -> None:
    assert together(for_both_ends) == [2]


def test_updates_of_one_memory_or_of_other_points_are_kernels_of_their_own() -> None:
    assert together(one_after_the_other) == [1, 1]
    assert together(of_elements_and_of_rows) == [1, 1]


def test_on_a_cpu_the_points_of_a_scatter_run_one_after_the_other() -> None:
    places = torch.randint(0, 900, (2, 50))
    (schedule,) = capture(for_both_ends, f32(50, 64), *places).schedules
    kernels = [s for s in schedule.steps if isinstance(s, Kernel)]
    scatters = [[n for n in k.nodes if isinstance(n, Scatter)] for k in kernels]
    assert sorted(map(len, scatters))[-2:] == [1, 1]
