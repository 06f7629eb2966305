"""The order of steps, which determines the memory in use."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judge import assert_as_eager, compiled
from programs import f32
from property_settings import property_settings
from stages import capture

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Extern
from tcdebug.compiler.schedule import memory_order
from tcdebug.compiler.schedule.fusing.fusion import Fusion
from tcdebug.compiler.schedule.kernel import Schedule

UNIT = "memory.order"


def calls(schedule: Schedule) -> list[str]:
    """The extern calls in order, without views."""
    return [s.name for s in schedule.steps if isinstance(s, Extern) and s.alias_of is None]


def two_products(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
    """Two large values, each of which only one small result needs."""
    first, second = a @ b, a @ c
    return second.t() @ a, first.t() @ a


def large() -> list[torch.Tensor]:
    return [f32(512, 8), f32(8, 1024), f32(8, 1024)]


def test_steps_that_free_more_than_they_allocate_run_first() -> None:
    (before,) = capture(two_products, *large(), toggles=Toggles.parse([UNIT])).schedules
    assert calls(before) == ["mm", "mm_1", "mm_2", "mm_3"]
    torch._dynamo.reset()
    (schedule,) = capture(two_products, *large()).schedules
    assert calls(schedule) == ["mm", "mm_3", "mm_1", "mm_2"]


def test_small_graphs_keep_the_order_of_the_program() -> None:
    (schedule,) = capture(two_products, f32(5, 8), f32(8, 9), f32(8, 9)).schedules
    assert calls(schedule) == ["mm", "mm_1", "mm_2", "mm_3"]


def test_the_peak_counts_live_values() -> None:
    """2 MiB each: both large values at the same time, or one after the other."""
    (schedule,) = capture(two_products, *large()).schedules
    steps = list(schedule.steps)
    found = memory_order.Lifetimes(schedule.graph, steps, {s.name for s in steps})
    order = [s.name for s in steps]
    runs = [order.index(n) for n in ("mm", "mm_1", "mm_2", "mm_3")]
    small = 1024 * 8 * 4
    assert found.peak(runs) == 2 * 2**21 + small
    assert found.peak([runs[0], runs[3], runs[1], runs[2]]) == 2**21 + 2 * small


def test_memory_that_is_stored_over_counts_once() -> None:
    """2 MiB for a product and for the result that a kernel stores over it."""
    (graph,) = capture(lambda a, b: (a @ b).relu() @ b.t(), *large()[:2]).inlined
    fusion = Fusion(graph, Gate())
    fusion.run()
    steps = fusion.ordered()
    found = memory_order.Lifetimes(graph, steps, {"mm", "relu", "mm_1"})
    assert found.peak(range(len(steps))) == 2**21 + 512 * 8 * 4


def test_a_write_stays_after_earlier_reads_of_the_memory() -> None:
    """Even if the reader allocates memory and the write would free some."""

    def function(x: torch.Tensor, a: torch.Tensor) -> Any:
        y = (x @ a).relu() @ a.t()
        x.add_(a[0, 0])
        return y, x @ a

    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [f32(600, 600), f32(600, 600)])


@property_settings(8)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=9))
def test_every_order_that_is_found_computes_the_same(plan: list[tuple[int, int, bool]]) -> None:
    """Products, sums and updates of earlier values, where every saving counts."""

    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        values, w = [x @ w, x.t()], w.clone()
        for first, second, update in plan:
            a, b = values[first % len(values)], values[second % len(values)]
            values.append((a @ b).tanh())
            if update:
                w.add_(values[-1])
                values.append(w * 2)
        return [v.sum(0) for v in values]

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_order, "WORTH", 1)
        patch.setattr(memory_order, "SHARE", 0)
        assert_as_eager(compiled(function), function, [f32(4, 4), f32(4, 4)])
