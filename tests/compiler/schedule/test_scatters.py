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


def of_waves(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    sums, waves = x.new_zeros(900, 64), x.sin()
    return put(sums, i, waves * 2) + put(sums, j, waves * 3)


def read_again(x: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    sums = put(x.new_zeros(5000, 64), i, x.sin())
    return sums, sums.cos() * x.sin()


def together(function: Function) -> list[int]:
    """The number of scatters in each kernel that has any."""
    counts = [sum(isinstance(n, Scatter) for n in kernel.nodes) for kernel in kernels_of(function)]
    return [count for count in counts if count]


def stored(function: Function) -> list[list[str]]:
    """What each kernel stores, in the order of names."""
    return sorted(sorted(kernel.stored) for kernel in kernels_of(function))


def kernels_of(function: Function) -> list[Kernel]:
    def program() -> tuple[Function, tuple[Tensor, ...]]:
        return function, (cuda(5000, 64), *(cuda(5000, dtype=torch.int64) for _ in range(2)))

    return [call.kernel for call in triton_of(program).calls.values()]


def test_sums_of_what_both_read_are_one_kernel() -> None:
    assert together(for_both_ends) == [2]


def test_what_scatters_add_is_computed_in_their_kernel() -> None:
    assert together(of_waves) == [2]
    bases = [["index_put_1_base"], ["index_put_base"]]
    assert stored(of_waves) == [["add"], ["index_put", "index_put_1"], *bases]


def test_what_reads_or_fills_the_memory_of_a_scatter_is_a_kernel_of_its_own() -> None:
    assert together(read_again) == [1]
    assert stored(read_again) == [["index_put"], ["index_put_base"], ["mul"]]


def test_updates_of_one_memory_or_of_other_points_are_kernels_of_their_own() -> None:
    assert together(one_after_the_other) == [1, 1]
    assert together(of_elements_and_of_rows) == [1, 1]


def test_on_a_cpu_the_points_of_a_scatter_run_one_after_the_other() -> None:
    places = torch.randint(0, 900, (2, 50))
    (schedule,) = capture(for_both_ends, f32(50, 64), *places).schedules
    kernels = [s for s in schedule.steps if isinstance(s, Kernel)]
    scatters = [[n for n in k.nodes if isinstance(n, Scatter)] for k in kernels]
    assert sorted(map(len, scatters))[-2:] == [1, 1]
