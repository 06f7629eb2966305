"""Scheduling: inlining, fusion, the order of steps, and the verifier."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from index_strategies import PROPERTY, evaluate
from programs import f32
from stages import Captured, capture
from torch.nn import functional as F

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir import interpreter
from tcdebug.compiler.ir.arithmetic.index import Axis, product, to_index
from tcdebug.compiler.ir.cost import arithmetic, bytes_of
from tcdebug.compiler.ir.graph import Extern, Graph
from tcdebug.compiler.ir.verifier import InvalidGraph
from tcdebug.compiler.schedule.fusing.align import refine
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies
from tcdebug.compiler.schedule.fusing.profit import work_of
from tcdebug.compiler.schedule.inlining import inline
from tcdebug.compiler.schedule.inlining.inline import inline_producers
from tcdebug.compiler.schedule.kernel import Kernel, Schedule
from tcdebug.compiler.schedule.verifier import verify_schedule


def shape(function: Callable[..., Any], *inputs: Any, off: tuple[str, ...] = ()) -> list[str]:
    """The steps: the number of nodes of each kernel, or the operator of an extern call."""
    return steps(capture(function, *inputs, toggles=Toggles.parse(off)))


def steps(captured: Captured) -> list[str]:
    (schedule,) = captured.schedules
    return [
        str(len(s.nodes)) if isinstance(s, Kernel) else s.origin.op.removeprefix("aten.")
        for s in schedule.steps
        if isinstance(s, Kernel) or s.alias_of is None
    ]


# -- inline -------------------------------------------------------------------------------------


def test_a_chain_becomes_one_node() -> None:
    assert shape(lambda x: ((x + 1).sin() * 2).exp(), f32(4, 5)) == ["1"]


def test_without_inlining_a_chain_is_fused_instead() -> None:
    assert shape(lambda x: ((x + 1).sin() * 2).exp(), f32(4, 5), off=("fuse.inline",)) == ["4"]


def large(captured: Captured) -> list[str]:
    """The stored values of at least 3000 elements."""
    (schedule,) = captured.schedules
    kernels = [s for s in schedule.steps if isinstance(s, Kernel)]
    return [
        n.name
        for kernel in kernels
        for n in kernel.nodes
        if n.name in kernel.stored and math.prod(int(s.constant or 0) for s in n.out.size) >= 3000
    ]


def test_what_reads_one_element_of_each_row_computes_it() -> None:
    target = torch.arange(64) % 50

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, label_smoothing=0.1)

    assert large(capture(loss, f32(64, 50))) == []
    assert large(capture(loss, f32(64, 50), toggles=Toggles.parse(["fuse.inline"]))) == ["sub_1"]


def test_what_reads_one_element_of_each_row_does_not_make_two_others_stored() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        difference = x.cumsum(1) - x.cummax(1).values
        return difference.sum(1), difference[:, 7]

    assert large(capture(function, f32(64, 50))) == ["sub"]


def test_a_function_does_not_join_reductions_that_would_compute_it_in_each_sweep() -> None:
    def rows_first(x: torch.Tensor) -> torch.Tensor:
        y = x.softmax(1).tanh()
        return (y - y.mean(0)).square().sum(0)

    def columns_first(x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(x - x.mean(0))
        return (y - y.mean(1, keepdim=True)).square().sum(1)

    assert large(capture(rows_first, f32(64, 50))) == ["tanh"]
    assert large(capture(columns_first, f32(64, 50))) == ["mul_2"]


def test_what_is_cheap_joins_the_rows_that_read_it_instead_of_another_sweep_of_columns() -> None:
    def function(x: torch.Tensor) -> Any:
        y = F.pad(x[:, 1:], (1, 0)).tanh().sigmoid()
        return F.pad((y - y.mean(0))[:, 1:], (1, 0)).max(1)

    assert large(capture(function, f32(64, 50))) == ["sigmoid"]


def test_a_fault_of_inlining_does_not_show_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("a body cannot be inlined")

    monkeypatch.setattr(inline, "inlined", broken)
    with pytest.raises(Exception, match="a body cannot be inlined"):
        shape(lambda x: (x + 1).sin(), f32(4, 5))
    assert shape(lambda x: (x + 1).sin(), f32(4, 5), off=("fuse.inline",)) == ["2"]


def test_without_fusion_of_any_kind_every_node_is_a_kernel() -> None:
    assert shape(lambda x: ((x + 1).sin() * 2).exp(), f32(4, 5), off=("fuse",)) == ["1"] * 4


def test_a_value_that_is_expensive_and_read_often_is_stored() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin().exp().tanh()
        return y[:, None] * y[None, :]

    captured = capture(function, f32(50))
    (inlined,) = captured.inlined
    assert [n.out.size[0] for n in inlined.nodes] == [50, 50]
    assert len(inlined.nodes) == 2


def test_a_cheap_value_is_recomputed() -> None:
    captured = capture(lambda x: (x + 1)[:, None] * (x + 1)[None, :], f32(50))
    assert len(captured.inlined[0].nodes) == 1


def test_a_value_that_few_points_read_twice_is_recomputed() -> None:
    for pad in ("reflect", "replicate"):
        captured = capture(lambda x: F.pad(x.tanh(), (3, 2, 4, 1), mode=pad), f32(5, 8, 56, 60))  # noqa: B023
        assert len(captured.inlined[0].nodes) == 1


def test_a_gather_that_is_read_twice_is_stored() -> None:
    def function(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        return F.pad(x[where][None], (3, 2), mode="reflect")

    captured = capture(function, f32(9, 56), torch.arange(7))
    assert len(captured.inlined[0].nodes) == 2


def test_the_work_of_a_kernel_is_limited() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        found = [x]
        for _ in range(40):
            x = found[-1]
            found.append(x.sin() + x.cos() * x.tanh() + x.erf() + torch.remainder(x, 0.3))
        return found[1:]

    work = [work_of(k.nodes) for k in capture(function, f32(300)).schedules[0].kernels()]
    assert len(work) == 2
    assert max(work) <= 1500


def test_the_size_of_a_body_is_limited() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = x.sin() + x.cos() * x
        return x

    captured = capture(function, f32(3))
    from tcdebug.compiler.ir.expr import walk  # noqa: PLC0415 # the only use
    from tcdebug.compiler.schedule.inlining.inline import LARGEST_BODY  # noqa: PLC0415 # the only use

    sizes = [sum(1 for _ in walk(n.body)) for n in captured.inlined[0].nodes]
    assert max(sizes) <= LARGEST_BODY


def test_a_producer_that_loses_its_other_consumers_is_computed_in_the_last_one() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logarithm = x.log()
        return torch.where(logarithm > y, logarithm, y)

    (graph,) = capture(function, f32(4), f32(4)).inlined
    assert [n.name for n in graph.nodes] == ["where"]


def test_on_a_gpu_tensors_are_read_at_computed_indices_within_one_kernel() -> None:
    """A padding by reflection reads one dimension after the other."""
    function = lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect")  # noqa: E731 # a program
    (graph,) = capture(function, f32(1, 2, 60, 60)).lowered
    moved = tuple(replace(n, out=replace(n.out, device=torch.device("cuda"))) for n in graph.nodes)
    inlined = inline_producers(replace(graph, nodes=moved), Gate())
    assert [n.name for n in inlined.nodes] == ["_unsafe_index_1"]


def write_between() -> Graph:
    """add reads x, copy_ writes x, mul reads add, as for an operator that mutates."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        x.copy_(torch.ones(4))
        return y * 2

    (graph,) = capture(function, f32(4)).lowered
    order = sorted(graph.nodes, key=lambda n: (n.name == "mul", n.name.startswith("copy_")))
    assert [n.name for n in order] == ["add", "ones", "copy", "copy_", "mul"]
    return replace(graph, nodes=tuple(order))


def test_a_producer_is_not_moved_past_a_write_to_its_operand() -> None:
    graph = write_between()
    x = f32(4)
    expected = ((x + 1) * 2).tolist()
    inlined = inline_producers(graph, Gate())
    assert "add" in {n.name for n in inlined.nodes}
    (found,) = interpreter.run(inlined, [x])
    assert found.tolist() == expected


def test_a_value_of_memory_that_was_updated_before_is_computed_in_its_consumer() -> None:
    def function(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_add_(0, at, y)
        return (x.sin() + x.cos()).tanh() * 3

    (graph,) = capture(function, f32(5, 4), torch.tensor([3, 1]), f32(2, 4)).inlined
    assert [n.name for n in graph.nodes] == ["index_add__default", "mul"]


def test_a_value_of_memory_that_is_updated_before_and_after_stays_between() -> None:
    def function(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.index_add_(0, at, y)
        before = x.sin()
        x.index_add_(0, at, y)
        return before * x

    captured = capture(function, f32(5, 4), torch.tensor([3, 1]), f32(2, 4))
    (graph,) = captured.inlined
    assert [n.name for n in graph.nodes] == [
        "index_add__default", "sin", "index_add__default_1", "mul"
    ]  # fmt: skip


def test_reads_of_memory_run_before_later_writes() -> None:
    graph = write_between()
    dependencies = Dependencies(graph)
    write = next(n.name for n in graph.nodes if n.name.startswith("copy_"))
    assert dependencies.reaches(dependencies.key_of("add"), dependencies.key_of(write))
    assert not dependencies.reaches(dependencies.key_of(write), dependencies.key_of("add"))


# -- fusion -------------------------------------------------------------------------------------


def test_softmax_is_one_kernel() -> None:
    assert shape(lambda x: torch.softmax(x, -1), f32(16, 100)) == ["4"]


def test_softmax_without_fusion_of_reductions() -> None:
    off = ("fuse.reduction",)
    assert shape(lambda x: torch.softmax(x, -1), f32(16, 100), off=off) == ["1", "1", "1", "1"]


def test_neighbours_that_read_the_same_memory_are_one_kernel() -> None:
    function = lambda x: (x.sin(), x.cos())  # noqa: E731 # shortest
    assert shape(function, f32(4, 5)) == ["2"]
    torch._dynamo.reset()
    assert shape(function, f32(4, 5), off=("fuse.horizontal",)) == ["1", "1"]


def test_nodes_that_share_no_buffer_are_not_fused() -> None:
    assert shape(lambda x, y: (x.sin(), y.cos()), f32(4, 5), f32(4, 5)) == ["1", "1"]


def test_an_extern_call_between_two_nodes_prevents_fusion() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return (y @ w).cos() + y

    assert shape(function, f32(4, 4), f32(4, 4)) == ["1", "mm.default", "1"]


def test_loops_of_different_shape_over_the_same_points_are_fused() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x.sin()
        return y, y.view(2, 3, 8).exp()

    assert shape(function, f32(6, 8), off=("fuse.inline",)) == ["2"]


def test_the_size_of_a_kernel_is_limited() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [x + k for k in range(60)]

    captured = capture(function, f32(5))
    assert max(len(k.nodes) for k in captured.schedules[0].kernels()) <= 48


def test_only_values_that_are_read_outside_are_stored() -> None:
    captured = capture(lambda x: torch.softmax(x, -1), f32(16, 100))
    ((kernel,),) = [s.kernels() for s in captured.schedules]
    assert len(kernel.stored) == 1


def test_the_name_of_a_kernel_tells_what_it_computes() -> None:
    captured = capture(lambda x: torch.softmax(x, -1), f32(16, 100))
    ((kernel,),) = [s.kernels() for s in captured.schedules]
    assert kernel.name.startswith("cpp_red_fused_")
    assert kernel.name.isidentifier()


# -- axes ---------------------------------------------------------------------------------------

SIZES = st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=3)


def axes(prefix: str, sizes: list[int]) -> list[Axis]:
    return [Axis(f"{prefix}{k}", to_index(n)) for k, n in enumerate(sizes)]


@given(SIZES, SIZES)
@PROPERTY
def test_refined_axes_visit_the_same_points_in_the_same_order(
    left: list[int], right: list[int]
) -> None:
    a, b = axes("a", left), axes("b", right)
    refined = refine(a, b)
    if refined is None:
        assert left != right
        return
    fresh, from_left, from_right = refined
    assert product(x.size for x in fresh) == product(x.size for x in a)
    points: list[dict[str, int]] = [{}]
    for axis in fresh:
        points = [{**p, axis.name: k} for p in points for k in range(axis.size.constant or 0)]
    for order, point in enumerate(points):
        for side, mapping in ((a, from_left), (b, from_right)):
            flat = 0
            for axis in side:
                flat = flat * (axis.size.constant or 0) + evaluate(mapping[axis], point)
            assert flat == order


def test_sizes_that_do_not_divide_have_no_common_axes() -> None:
    assert refine(axes("a", [4, 6]), axes("b", [6, 4])) is None
    assert refine(axes("a", [4]), axes("b", [5])) is None


# -- cost ---------------------------------------------------------------------------------------


def test_arithmetic_counts_a_shared_expression_once() -> None:
    (graph,) = capture(lambda x: (x.sin() + 1) * (x.sin() + 1), f32(3)).inlined
    assert arithmetic(graph.nodes[-1].body) == 8 + 1 + 1


def test_bytes_of_a_buffer() -> None:
    (graph,) = capture(lambda x: x.double() + 1, f32(3, 5)).lowered
    assert bytes_of(graph.nodes[-1].out) == 3 * 5 * 8


# -- the verifier -------------------------------------------------------------------------------


@pytest.fixture
def sound() -> Schedule:
    """Kernel, extern call, kernel."""
    captured = capture(lambda x: (x.sin() @ x).exp(), f32(4, 4))
    return captured.schedules[0]


def refused(schedule: Schedule) -> list[str]:
    with pytest.raises(InvalidGraph) as found:
        verify_schedule(schedule)
    return found.value.problems


def test_a_valid_schedule_passes(sound: Schedule) -> None:
    verify_schedule(sound)


def test_a_step_before_its_operands(sound: Schedule) -> None:
    problems = refused(replace(sound, steps=tuple(reversed(sound.steps))))
    assert [p.split(" runs before ")[1] for p in problems] == ["['mm']", "['sin']"]


def test_a_step_that_is_missing_or_runs_twice(sound: Schedule) -> None:
    message = "the schedule does not run every node of the graph once"
    assert refused(replace(sound, steps=sound.steps[:-1])) == [message]
    assert refused(replace(sound, steps=(*sound.steps, sound.steps[-1]))) == [message]


def test_a_value_that_is_read_outside_and_not_stored(sound: Schedule) -> None:
    first = sound.steps[0]
    assert isinstance(first, Kernel)
    silent = replace(first, stored=frozenset())
    assert refused(replace(sound, steps=(silent, *sound.steps[1:]))) == ["mm runs before ['sin']"]


def test_a_node_with_different_loops_from_its_kernel(sound: Schedule) -> None:
    first = sound.steps[0]
    assert isinstance(first, Kernel)
    outer = tuple(Axis(a.name, a.size + 1) for a in first.outer)
    broken = replace(first, outer=outer)
    (problem,) = refused(replace(sound, steps=(broken, *sound.steps[1:])))
    assert "sin loops over" in problem


def test_a_node_that_reads_another_point_of_a_node_in_its_kernel() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    captured = capture(function, f32(4), toggles=Toggles.parse(["fuse.inline"]))
    (schedule,) = captured.schedules
    (kernel,) = schedule.kernels()
    add = kernel.nodes[1]
    moved = replace(
        add, body=add.body.substitute({kernel.outer[0]: to_index(3) - to_index(kernel.outer[0])})
    )
    broken = replace(kernel, nodes=(kernel.nodes[0], moved))
    (problem,) = refused(replace(schedule, steps=(broken,)))
    assert "while it is computed" in problem


def test_effects_keep_their_order() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(torch.rand(3))
        y.add_(torch.rand(3))
        return x + y

    captured = capture(function, f32(3), f32(3) + 1)
    (schedule,) = captured.schedules
    effects = [s for s in schedule.steps if isinstance(s, Extern) and s.effect]
    assert [e.name for e in effects] == [
        n.name for n in schedule.graph.nodes if isinstance(n, Extern) and n.effect
    ]
    assert len(effects) == 2
