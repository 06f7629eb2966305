"""memory.view: views are made in one step from the memory that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from index_strategies import PROPERTY
from judge import assert_as_eager, compiled
from programs import f32
from stages import capture

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.wrapper.views import direct_views
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.graph import Buffer, Extern, Graph, Input, Origin, Ref
from tcdebug.compiler.lower.tables import VIEWS
from tcdebug.compiler.schedule.kernel import Schedule

Function = Callable[..., Any]
OFF = Toggles.parse(["memory.view"])
MM, T = torch.ops.aten.mm.default, torch.ops.aten.t.default


def buffer_of(name: str, *stride: int) -> Buffer:
    """A buffer of 6 x 6 floats."""
    return Buffer(name, torch.float32, (to_index(6),) * 2, tuple(map(to_index, stride or (6, 1))))


def made(
    function: Function,
    *inputs: torch.Tensor,
    direction: str = "inference",
    dynamic: bool = False,
    off: Toggles | None = None,
) -> list[tuple[Any, ...]]:
    """The arguments of the views that are made in one step, after that of their memory."""
    (schedule, *_) = capture(function, *inputs, dynamic=dynamic).schedules
    schedule = direct_views(schedule, VIEWS, direction, Gate(off or Toggles()))
    calls = [step for step in schedule.steps if isinstance(step, Extern)]
    return [call.args[1:] for call in calls if call.target is seams.reinterpret_tensor]


MADE: dict[str, tuple[Function, list[str]]] = {
    # function, size, stride and start of each view
    "a slice": (lambda x: (x[1:], x + 1), ["((5, 6), (6, 1), 6)"]),
    "a view of views": (lambda x: (x[1:].t()[2], x + 1), ["((5,), (6,), 8)"]),
    "one of many": (lambda x: (x.unbind(1)[2], x + 1), ["((6,), (6,), 2)"]),
    "parts": (
        lambda x: (*x.split(4), x + 1), ["((4, 6), (6, 1), 0)", "((2, 6), (6, 1), 24)"]
    ),
    "of a result": (lambda x: (x + 1)[2:], ["((4, 6), (6, 1), 12)"]),
    "operands of a call": (
        lambda x: x[1:4, 1:3] @ x[:2], ["((3, 2), (6, 1), 7)", "((2, 6), (6, 1), 0)"]
    ),
    "of a product": (lambda x: (x @ x)[1:], ["((5, 6), (6, 1), 6)"]),
    "of the result of a call": (lambda x: torch.cholesky_inverse(x)[1:], []),
    "with another dtype": (lambda x: (x.view(torch.int32), x + 1), []),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_a_view_of_an_input_or_of_the_result_of_a_kernel_calls_no_operator(name: str) -> None:
    function, expected = MADE[name]
    assert [str(arguments) for arguments in made(function, f32(6, 6))] == expected
    assert made(function, f32(6, 6), off=OFF) == []
    assert_as_eager(compiled(function), function, [f32(7, 6)[1:]])


def test_what_is_not_known_before_the_call_is_left_to_the_operator() -> None:
    """A size, the strides of what hooks gave to backward, and the version of what is saved."""

    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[1:], x * 2

    assert len(made(halves, f32(6, 6))) == 1
    assert made(halves, f32(6, 6), dynamic=True) == []
    assert made(halves, f32(6, 6), direction="backward") == []
    assert made(halves, f32(6, 6), direction="forward") == []


def test_a_view_of_a_product_of_a_sparse_tensor_is_left_to_the_operator() -> None:
    """Dynamo compiles no graph with one, but other callers may."""
    graph = Graph(
        inputs=(Input("x"), Input("y", buffer_of("y"))),
        nodes=(
            Extern("mm", MM, (Ref("x"), Ref("y")), {}, buffer_of("mm"), Origin("mm", "aten.mm")),
            Extern("t", T, (Ref("mm"),), {}, buffer_of("t", 1, 6), Origin("t", "t"), alias_of="mm"),
        ),
        outputs=(Ref("t"),),
    )
    externs = tuple(node for node in graph.nodes if isinstance(node, Extern))
    schedule = Schedule(graph, externs)
    assert direct_views(schedule, VIEWS, "inference", Gate()) is schedule
    dense = replace(graph, inputs=(Input("x", buffer_of("x")), graph.inputs[1]))
    (_, view) = direct_views(Schedule(dense, externs), VIEWS, "inference", Gate()).steps
    assert isinstance(view, Extern) and view.target is seams.reinterpret_tensor


def test_autograd_notices_an_update_of_what_a_view_of_it_saved() -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x[1:] @ w

    for function in (product, compiled(product)):
        x, w = f32(6, 6), f32(6, 6).requires_grad_()
        result = function(x, w)
        x.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


UPDATED: dict[str, Function] = {
    "before": lambda x: (x.add_(1)[2:], x * 2),
    "after": lambda x: (x[2:], x.add_(1)),
    "in between": lambda x: (x[2:].clone()[1], x[1].mul_(3)),
    "a part of it": lambda x: (x[::2].add_(1).t(), x[1:]),
    "a copy in its memory": lambda x: (x.copy_(x.flip(0) * 2)[1:4], x.sum()),
}


@pytest.mark.parametrize("name", UPDATED)
def test_a_view_of_an_updated_input_has_its_values(name: str) -> None:
    assert_as_eager(compiled(UPDATED[name]), UPDATED[name], [f32(7, 6)[1:]])


STEPS: tuple[Function, ...] = (
    lambda x: x.transpose(0, -1),
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x[-1:],
    lambda x: x.unsqueeze(1),
    lambda x: x.squeeze(),
    lambda x: x.unbind(0)[-1],
    lambda x: x.split(2, -1)[0],
    lambda x: x.chunk(3)[-1],
    lambda x: x.expand(2, *x.shape),
    lambda x: x.diagonal(0, 0, -1),
    lambda x: x.unfold(-1, 2, 1),
    lambda x: x.flatten(),
    lambda x: x.detach(),
)
SOURCES: tuple[Function, ...] = (
    lambda x: x,
    lambda x: x + 1,
    lambda x: x @ x.transpose(-1, -2),
    lambda x: x.transpose(-1, -2) @ x,
)


@settings(PROPERTY, max_examples=25)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=5),
    st.sampled_from(((5, 4, 3), (3, 6), (7, 1))),
    st.sampled_from(SOURCES),
)
def test_views_of_views_are_those_of_eager(
    steps: list[Function], size: tuple[int, ...], source: Function
) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        view = y = source(x)
        for step in steps:
            if view.dim() and view.numel():
                view = step(view)
        return view, torch.nanmedian(view), y.sum()  # a median is a call of ATen

    x = f32(*size[:-1], 2 * size[-1])[..., 1::2]
    try:
        function(x)
    except (RuntimeError, IndexError, ValueError):
        return  # a view that its tensor does not have
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [x])
