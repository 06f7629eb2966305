"""Results that are written over buffers that their kernel is the last to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chains import Operation, Steps, chains, values_of
from hypothesis import example, given
from hypothesis import strategies as st
from judge import assert_as_eager, assert_same, compiled, copies, gradients
from programs import f32
from property_settings import property_settings
from stages import Captured, capture, recording_backend
from torch.nn import functional as F
from traced_on_cuda import cuda, triton_of

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, flatten
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, to_index
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.ir.expr import Expr, Load
from tcdebug.compiler.ir.graph import Origin
from tcdebug.compiler.schedule import in_place
from tcdebug.compiler.schedule.in_place import UNIT


def written_over(function: Callable[..., Any], *inputs: Any) -> list[tuple[str, str]]:
    """(operator of a result, operator of the buffer that it is stored over)."""
    captured = capture(function, *inputs)
    found = []
    for schedule in captured.schedules:
        made = {n.name: n.origin.op for n in schedule.graph.nodes}
        for kernel in schedule.kernels():
            nodes = [n for n in kernel.nodes if getattr(n, "into", "") in made]
            found += [(n.origin.op, made[n.into]) for n in nodes]
    return found


CASES: dict[str, tuple[Callable[..., Any], list[tuple[str, str]]]] = {
    "epilogue": (lambda x: (x @ x).relu(), [("aten.relu.default", "aten.mm.default")]),
    "read_twice": (lambda x: ((y := x @ x).sin(), y.sum()), []),
    "with_a_sum": (
        lambda x: ((y := (x @ x).exp()), y.sum(0)),
        [("aten.exp.default", "aten.mm.default")],
    ),
    "softmax": (lambda x: (x @ x).softmax(-1), [("aten.div.Tensor", "aten.mm.default")]),
    "returned": (lambda x: ((y := x @ x), y * 2), []),
    "viewed": (lambda x: ((y := x @ x) * 2, y.t() @ x), []),
    "transposed": (lambda x: (x @ x).t().sin() + (x @ x), []),
    "an_input": (lambda x: x * 2, []),
    "rows_of_batches": (
        lambda x: (x @ x).view(2, 4, 8).relu() @ x,
        [("aten.relu.default", "aten.mm.default")],
    ),
    "returned_rows_of_batches": (
        lambda x: (x @ x).view(2, 4, 8).relu(),
        [("aten.relu.default", "aten.mm.default")],
    ),
    "permuted_batches": (
        lambda x: (x @ x).view(2, 4, 8).transpose(0, 1) + 1,
        [("aten.add.Tensor", "aten.mm.default")],
    ),
    "other_rows": (lambda x: (x @ x).view(2, 4, 8).flip(0) + 1, []),
    "transposed_batches": (lambda x: (x @ x).view(2, 4, 8).transpose(0, 1).contiguous() + 1, []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_buffer_that_is_dead_after_a_kernel_is_overwritten(name: str) -> None:
    function, expected = CASES[name]
    assert_as_eager(compiled(function), function, [f32(8, 8)])
    torch._dynamo.reset()
    if name != "read_twice":  # one kernel reads it twice, or two kernels read it
        assert written_over(function, f32(8, 8)) == expected


def test_on_a_gpu_a_result_overwrites_only_its_own_operands() -> None:
    """With inner loops too. Another thread may still need a buffer that is only read beside it."""
    made = triton_of(lambda: (lambda x: ((x @ x).relu(), (x @ x.t()).softmax(-1)), (cuda(9, 9),)))
    assert [len(k.call.into) for k in made.kernels.values()] == [1, 1]
    torch._dynamo.reset()
    beside = triton_of(lambda: (lambda x: ((x @ x).sum(0), x.t().sin()), (cuda(9, 9),)))
    assert [dict(k.call.into) for k in beside.kernels.values()] == [{}] * len(beside.kernels)


def test_on_a_gpu_a_later_sweep_computes_nothing_again_from_overwritten_memory() -> None:
    """Rows of 4096 are read in two sweeps. The first stores the sum, the second computes it again.

    On a CPU, the second sweep loads the sum.
    """

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x @ w + x
        return F.rms_norm(total, (4096,)), total

    made = triton_of(lambda: (function, (cuda(64, 4096), cuda(4096, 4096))))
    assert [dict(k.call.into) for k in made.kernels.values()] == [{"mul": "mm"}]


def test_a_store_reads_its_operands_before_others_overwrite_them() -> None:
    """As in RWKV: a store runs last, but before its operands are overwritten."""
    index = to_index(Axis("i0", to_index(8)))

    def node(name: str, body: Expr, into: str = "") -> FlatNode:
        return FlatNode(name, torch.float32, "", True, index, body, Origin(name, "aten.x"), into)

    def load(name: str, *at: Index) -> Load:
        return Load(torch.float32, name, at)

    late = node("late", call("add", load("one", index), load("two", index)), into="two")
    first = node("first", call("neg", load("one", index)), into="one")
    reader = node("reader", call("neg", load("first")))
    kernel = FlatKernel("kernel", (), (), (late, first, reader), frozenset(("late", "first")))
    (segment,) = segments(kernel)
    assert [n.name for n in segment.nodes] == ["late", "first", "reader"]


@pytest.mark.parametrize("outputs", [2, 3])
def test_of_two_stores_that_would_wait_for_each_other_one_gets_memory_of_its_own(
    outputs: int,
) -> None:
    """All are computed from both products again, once the mean is known."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x @ x + x @ x.t()
        wave = total.sin()
        mean = wave.mean(-1, keepdim=True)
        return (total * mean, wave + mean, wave - mean)[:outputs]

    assert_as_eager(compiled(function), function, [f32(8, 8)])
    torch._dynamo.reset()
    assert len(written_over(function, f32(8, 8))) == 1


def scaled_by_both(x: torch.Tensor, y: torch.Tensor) -> None:
    total = x + y
    wave = total.sin()
    mean = wave.mean(-1, keepdim=True)
    x.copy_(total * mean)
    y.copy_(wave + mean)


def in_a_ring(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    waves = [t.sin() for t in (x, y, z)]
    means = [w.mean(-1, keepdim=True) for w in waves]
    x.copy_(waves[1] * means[0])
    y.copy_(waves[2] * means[1])
    z.copy_(waves[0] * means[2])
    return means[0] + means[1] + means[2]


@pytest.mark.parametrize(("function", "count"), [(scaled_by_both, 2), (in_a_ring, 3)])
@pytest.mark.parametrize("size", [8, 3000])
def test_inputs_are_updated_that_are_all_computed_from_each_other(
    function: Callable[..., Any], count: int, size: int
) -> None:
    assert_as_eager(compiled(function), function, [f32(4, size) for _ in range(count)])


@torch.library.custom_op("tcdebug_in_place::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    """A product in columns, as a library may return it. Tracing sees rows."""
    return (x @ x).t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_result_of_a_library_in_an_unexpected_layout_is_overwritten_in_the_traced_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = torch.ops.tcdebug_in_place.turned.default
    monkeypatch.setattr(in_place, "FRESH", in_place.FRESH | {operator})
    x = f32(8, 8)
    assert_same(compiled(lambda x: turned(x) - x)(x), turned(x) - x, strides=False)


def test_memory_that_was_taken_over_twice_stays_alive() -> None:
    """A base takes the memory of the tensor it copies, and a scatter takes that of its base."""

    def function(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, k: torch.Tensor) -> Any:
        alone = torch.index_reduce(x, -1, i, x, "mean", include_self=False)
        return alone, torch.index_reduce(y, -1, k, x, "mean")

    def gradient(of: Callable[..., Any]) -> torch.Tensor:
        x = torch.tensor([1.0, 3.0], requires_grad=True)
        outputs = of(x, torch.ones(2), torch.tensor([1, 1]), torch.tensor([0, 0]))
        (found,) = torch.autograd.grad(outputs, x, [torch.tensor([2.0, 6.0])] * 2)
        return found

    off, expected = {"off": ["fuse.inline", "fuse.vertical"]}, pytest.approx([5 + 2 / 3, 3 + 2 / 3])
    assert gradient(function).tolist() == expected
    assert gradient(compiled(function, options=off)).tolist() == expected


def test_a_training_step_gives_the_same_results() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.gelu(x @ w) @ v, (6,)).tanh()

    inputs = [x.requires_grad_() for x in (f32(4, 6), f32(6, 8), f32(8, 6))]
    mine, theirs = copies(inputs), copies(inputs)
    torch.testing.assert_close(gradients(compiled(function), mine), gradients(function, theirs))


OPERATIONS: list[Operation] = [
    lambda x, y: x.sin(),
    lambda x, y: x @ y,
    lambda x, y: x - x.amax(-1, keepdim=True),
    lambda x, y: x.t() * 2,
    lambda x, y: x / (y.square().sum(0) + 1),
    lambda x, y: x.flip(0) + y,
    lambda x, y: x.cumsum(1) * 0.1,
    lambda x, y: x + y,
    lambda x, y: x * y.mean(-1, keepdim=True),
]


@property_settings(20)
@given(chains(OPERATIONS, 9), st.sampled_from([[], ["fuse.inline"], ["fuse.reduction"]]))
# two results are stored over two products, from which each is computed again
@example([(0, 0, 1), (1, 0, 1), (1, 2, 7), (3, 3, 0), (3, 4, 8), (4, 4, 8)], [])
def test_any_graph_gives_the_same_results(steps: Steps, off: list[str]) -> None:
    """Except for strides, which the interpreter of a schedule does not keep."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = values_of(steps, OPERATIONS, x)
        return values[-1], values[-2]

    torch._dynamo.reset()
    captured = Captured(interpreted="scheduled")
    once = torch.compile(function, backend=recording_backend(captured, Toggles.parse(off)))
    x = f32(5, 5) * 0.3
    assert_same(once(x), function(x), strides=False)
    for schedule in captured.schedules:
        for kernel in schedule.kernels():
            segments(flatten(kernel, schedule.graph.buffers(), collapse=True))


def test_it_can_be_switched_off() -> None:
    captured = capture(CASES["epilogue"][0], f32(8, 8), toggles=Toggles.parse([UNIT]))
    (kernel,) = captured.schedules[0].kernels()
    assert not any(getattr(n, "into", "") for n in kernel.nodes)


def test_a_result_that_took_over_rows_of_a_product_is_no_view_for_its_caller() -> None:
    """torch forbids an update with gradients of a view that was made without."""
    w = torch.ones(8, requires_grad=True)
    result = compiled(lambda x: (x @ x).view(2, 4, 8).relu())(f32(8, 8))
    assert not result._is_view()
    result.mul_(w).sum().backward()
    assert w.grad is not None


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_training_step_may_take_over_rows_of_a_product(dynamic: bool) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).sum(-1).relu() + x.sum(-1)

    def grads(call: Callable[..., Any]) -> list[torch.Tensor]:
        x, w = f32(2, 6, 8).requires_grad_(), f32(8, 8).requires_grad_()
        call(x, w).sum().backward()
        assert x.grad is not None and w.grad is not None
        return [x.grad, w.grad]

    step = torch.compile(function, backend="tcdebug", dynamic=dynamic)
    for got, expected in zip(grads(step), grads(function), strict=True):
        torch.testing.assert_close(got, expected)
