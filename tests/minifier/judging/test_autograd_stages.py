"""The first stage of AOTAutograd whose values differ, with a fault planted in each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo  # before the next line: they import each other
from captured import captured
from torch._functorch import partitioners
from torch._functorch._aot_autograd import graph_capture, runtime_wrappers
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch_versions import needs_torch

from tcdebug.minifier.cases.autograd_stage import StageFound
from tcdebug.minifier.judging.autograd_stages import find_autograd_stage
from tcdebug.minifier.judging.reference.eager_values import eager_values

aten = torch.ops.aten


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Replace a function of torch by a modified one."""

    def plant(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    yield plant


def stage_of(function: Callable[..., Any], *inputs: torch.Tensor) -> StageFound | None:
    return find_autograd_stage(captured(function, *inputs), "candidate.py")


def block(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.tanh(x) @ y
    return a.sin(), a[0] * 3


def inputs(*, gradients: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 3, generator=generator).requires_grad_(gradients)
    return x, torch.randn(3, 3, generator=generator)


def doubled_saved(graph: torch.fx.GraphModule) -> None:
    """Make the gradient of tanh read twice the value that was saved for it."""
    for node in graph.graph.find_nodes(op="call_function", target=aten.tanh_backward.default):
        with graph.graph.inserting_before(node):
            saved = graph.graph.call_function(aten.mul.Tensor, (node.args[1], 2))
        saved.meta = dict(node.args[1].meta)
        node.args = (node.args[0], saved)
    graph.recompile()


@pytest.mark.parametrize("gradients", [False, True])
def test_no_stage_is_named_if_nothing_differs(gradients: bool) -> None:
    assert stage_of(block, *inputs(gradients=gradients)) is None


def tracing_doubled(original: Any) -> Any:
    """Plant a fault in the function that traces: what backward reads is doubled."""

    def create(*args: Any, **kwargs: Any) -> Any:
        graph = original(*args, **kwargs)
        doubled_saved(graph)
        return graph

    return create


@pytest.mark.parametrize("gradients", [False, True])
def test_a_wrong_trace_leads_to_the_captured_node(
    planted: Callable[..., None], gradients: bool
) -> None:
    def make(original: Any) -> Any:
        def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is aten.select.int:
                args = (args[0], args[1], args[2] + 1)
            return original(self, func, types, args, kwargs)

        return dispatch

    planted(FunctionalTensorMode, "__torch_dispatch__", make)
    found = stage_of(block, *inputs(gradients=gradients))
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.trace", "capture")
    assert found.lines[0].startswith("- getitem = getitem(")
    assert found.lines[1].startswith("+ select = select.int(")


def test_a_wrong_gradient_of_the_trace_is_distinguished_from_the_partition(
    planted: Callable[..., None],
) -> None:
    planted(graph_capture, "_create_graph", tracing_doubled)
    found = stage_of(block, *inputs(gradients=True))
    assert found is not None
    assert found.stage == "autograd.trace"
    assert found.what.startswith("gradient 0: ")
    assert found.what.endswith(", in backward")


def test_a_wrong_gradient_of_an_argument_that_the_graph_updates_is_one_of_the_trace(
    planted: Callable[..., None],
) -> None:
    """The argument was computed, and the update replaces what autograd knows of it."""

    def updates(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        x.mul_(2)
        return y.sin()

    planted(graph_capture, "_create_graph", tracing_doubled)
    x, _ = inputs(gradients=True)
    found = stage_of(updates, x.clone())
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.trace", "capture")
    assert found.what.startswith("gradient 0: ")


def test_a_backward_that_differs_from_its_trace_leads_to_the_partition(
    planted: Callable[..., None],
) -> None:
    def make(original: Any) -> Any:
        def extract(*args: Any, **kwargs: Any) -> Any:
            forward, backward = original(*args, **kwargs)
            doubled_saved(backward)
            return forward, backward

        return extract

    planted(partitioners, "_extract_fwd_bwd_modules", make)
    found = stage_of(block, *inputs(gradients=True))
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.partition", "autograd.trace")


def test_a_wrongly_saved_tensor_is_named(planted: Callable[..., None]) -> None:
    def make(original: Any) -> Any:
        def extract(*args: Any, **kwargs: Any) -> Any:
            forward, backward = original(*args, **kwargs)
            output = forward.graph.output_node()
            (mm,) = forward.graph.find_nodes(op="call_function", target=aten.mm.default)
            with forward.graph.inserting_before(output):
                wrong = forward.graph.call_function(aten.mul.Tensor, (mm, 2))
            wrong.meta = dict(mm.meta)
            output.args = (tuple(wrong if n is mm else n for n in output.args[0]),)
            forward.recompile()
            return forward, backward

        return extract

    planted(partitioners, "_extract_fwd_bwd_modules", make)
    found = stage_of(block, *inputs(gradients=True))
    assert found is not None
    assert found.stage == "autograd.partition"
    assert "; saved tensor mm: " in found.what


def test_a_result_that_is_changed_after_the_graph_leads_to_the_runtime(
    planted: Callable[..., None],
) -> None:
    def make(original: Any) -> Any:
        def post_compile(self: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(self, compiled, *args, **kwargs)

            def call(args: Any) -> Any:
                return [o * 2 if k == 1 else o for k, o in enumerate(made(args))]

            call._boxed_call = True  # type: ignore[attr-defined] # AOTAutograd's protocol
            return call

        return post_compile

    planted(runtime_wrappers.RuntimeWrapper, "post_compile", make)
    found = stage_of(block, *inputs(gradients=False))
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.runtime", "autograd.partition")
    assert found.what.startswith("output 1: ")


@pytest.mark.parametrize("gradients", [False, True])
def test_no_stage_is_named_for_different_random_numbers(gradients: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x) + torch.rand_like(y)

    assert stage_of(function, *inputs(gradients=gradients)) is None


def test_a_gradient_that_is_rounded_elsewhere_than_in_eager_is_right() -> None:
    """Both are far from each other, and near to float64, as in a trace of a healthy graph."""
    torch.manual_seed(0)

    def less_its_mean(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x + torch.tanh((x.float() * 1.5).to(torch.bfloat16) @ weight)
        return x - x.mean(-1, keepdim=True)

    x = torch.randn(16, 16, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(16, 16, dtype=torch.bfloat16, requires_grad=True)
    case = captured(less_its_mean, x, weight)
    expected = eager_values(case.module, case.values())
    eager, exact = dict(expected.eager.gradients), dict(expected.exact.gradients)
    assert exact.keys() == eager.keys() == {0, 1}
    rounded = [exact[place].to(torch.bfloat16) for place in (0, 1)]
    assert not all(
        torch.allclose(rounded[place], eager[place], rtol=1.6e-2, atol=1e-3) for place in (0, 1)
    ), "out of tolerance"
    assert expected.first_wrong_gradient(rounded) is None
    wrong = expected.first_wrong_gradient([rounded[0], rounded[1] * 4])
    assert wrong is not None and wrong.where == "gradient 1"


class Doubled(torch.autograd.Function):
    """A function that updates its argument and returns it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 5


def add_with_gaps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Write to every second column, for which AOTAutograd clears the others."""
    x.unfold(1, 1, 2).add_(2)
    return torch.tanh(y)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_wrong_update_of_an_argument_is_one_of_the_trace(gradients: bool) -> None:
    y, x = inputs(gradients=gradients)
    found = stage_of(add_with_gaps, x, y)
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.trace", "capture")
    assert found.what.startswith("input 0: 3 of 9 out of tolerance, worst 0 instead of ")


def test_healthy_updates_of_arguments_differ_in_no_stage() -> None:
    def updates(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(y.detach())
        x[1].add_(2).exp_()
        return torch.tanh(x.detach() * y)

    for gradients in (False, True):
        y, x = inputs(gradients=gradients)
        assert stage_of(updates, x, y) is None
        assert stage_of(updates, x.double()[0:], y) is None
        assert stage_of(lambda x, y: updates(x, y) + x, x.clone().requires_grad_() * 1, y) is None


def test_an_update_that_is_lost_after_the_graphs_is_one_of_the_runtime(
    planted: Callable[..., None],
) -> None:
    def updates(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sin()

    planted(torch.Tensor, "copy_", lambda original: lambda self, *args, **kwargs: self)
    x = torch.ones(2, requires_grad=True)
    found = stage_of(updates, x.clone())
    assert found is not None
    assert (found.stage, found.last_equal) == ("autograd.runtime", "autograd.partition")


@needs_torch("2.13", "AOTAutograd differentiates the function as eager does")
def test_a_gradient_of_an_updated_argument_says_whether_a_backward_was_traced() -> None:
    x = torch.ones(2, requires_grad=True)
    returned = stage_of(lambda x: Doubled.apply(x), x.clone())
    assert returned is not None
    assert returned.stage == "autograd.runtime"
    assert returned.what.startswith("gradient 0: ")
    assert returned.what.endswith("; AOTAutograd traced no backward")
    used = stage_of(lambda x: Doubled.apply(x) * 3, x.clone())
    assert used is not None
    assert (used.stage, used.last_equal) == ("autograd.trace", "capture")
