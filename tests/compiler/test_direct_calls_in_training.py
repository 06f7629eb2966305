"""runtime.direct_calls: later calls of graphs with gradients bypass AOTAutograd's wrappers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from judge import assert_same
from programs import f32
from torch._dynamo import compiled_autograd
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor

from tcdebug.compiler import direct_calls

Function = Callable[..., Any]
weight, bias = f32(4, 3).requires_grad_(), f32(4).requires_grad_()
OFF = {"off": [direct_calls.UNIT]}


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return (x.exp() * x).sum(1)


def linear(x: torch.Tensor) -> torch.Tensor:
    """Its result is a reshaped product."""
    return F.linear(x[None], weight, bias)


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Some results have no gradient."""
    return x.sin(), x.argmax(1), x.detach() * 2, x.mean(), x.mT @ x


def compiled(function: Function, **options: Any) -> Function:
    torch._dynamo.reset()
    return torch.compile(function, backend="tcdebug", **options)


def is_direct(results: Any) -> bool:
    """Whether a call of a compiled function bypassed the wrappers."""
    nodes = [r.grad_fn for r in torch.utils._pytree.tree_leaves(results) if r.grad_fn is not None]
    made = getattr(nodes[0], "_forward_cls", None)
    return bool(made is not None and made.__module__ == direct_calls.__name__)


def gradients(results: Any, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    outputs = [r for r in torch.utils._pytree.tree_leaves(results) if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, o.numel()).reshape(o.shape) for o in outputs]
    return torch.autograd.grad(outputs, inputs, weights)


@pytest.mark.parametrize("function", [pointwise, linear, several])
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_and_gradients_of_later_calls_are_those_of_eager(
    function: Function, dynamic: bool
) -> None:
    run, found = compiled(function, dynamic=dynamic), []
    read = [weight, bias] if function is linear else []
    for rows in (4, 4, 4, 6, 6):
        x = torch.randn(rows, 3, requires_grad=True)
        results, expected = run(x), function(x)
        assert_same(results, expected)
        flags = [[r.requires_grad for r in torch.utils._pytree.tree_leaves(o)]
                 for o in (results, expected)]  # fmt: skip
        assert flags[0] == flags[1]
        assert_same(gradients(results, [x, *read]), gradients(expected, [x, *read]))
        found.append(is_direct(results))
    assert found[:3] == [False, True, True]
    assert found[4]


def test_with_the_unit_off_no_call_is_direct() -> None:
    run, x = compiled(pointwise, options=OFF), f32(4, 3).requires_grad_()
    assert [is_direct(run(x)) for _ in range(3)] == [False] * 3


def test_a_call_without_backward_is_direct_too() -> None:
    run, x = compiled(pointwise), f32(4, 3).requires_grad_()
    assert [is_direct(run(x)) for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize(
    "backward",
    [
        lambda y: y.sum().backward(),
        lambda y: y.backward(torch.ones(5, 4).mT),
        lambda y: y.backward(torch.ones(1, 1).expand(4, 5)),
        lambda y: y[:2].sum().backward(),
        lambda y: (y.sum().backward(retain_graph=True), y.sum().backward()),
        lambda y: (y.mT.contiguous() * 2).mean().backward(),
    ],
)
def test_gradients_of_any_layout_are_taken_and_may_be_taken_twice(backward: Function) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).tanh()

    run = compiled(function)
    for _ in range(3):
        mine, theirs = (f32(4, 5).requires_grad_() for _ in range(2))
        backward(run(mine))
        backward(function(theirs))
        assert_same(mine.grad, theirs.grad)


def trained(function: Function, x: torch.Tensor) -> Function:
    """A compiled function whose calls are direct and whose backward is compiled."""
    run = compiled(function)
    for _ in range(2):
        run(x).sum().backward()
    return run


def test_what_torch_refuses_is_refused_with_its_words() -> None:
    x = f32(4, 3).requires_grad_()
    run = trained(lambda x: x.exp() * x, x)
    (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()
    results = run(x)
    results.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        results.sum().backward()
    results = run(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        results.sum().backward()


def test_backward_in_deterministic_mode_is_refused_if_forward_was_not_in_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.embedding(torch.tensor([1, 0, 1]), x * 2)

    x = f32(4, 3).requires_grad_()
    results = trained(function, x)(x)
    with pytest.raises(RuntimeError, match="deterministic_algorithms"):
        try:
            torch.use_deterministic_algorithms(True)
            results.sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)


def test_hooks_see_saved_tensors_and_gradients() -> None:
    seen: list[int] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp().tanh()

    x = f32(4, 3).requires_grad_()
    run = trained(function, x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        results = run(x)
    assert is_direct(results)
    assert seen
    results.register_hook(lambda gradient: gradient * 2)
    x.grad = None
    results.sum().backward()
    assert x.grad is not None
    wanted = torch.autograd.grad(function(x).sum(), x)[0] * 2
    assert_same(x.grad, wanted)


def test_memory_that_only_backward_reads_is_free_after_it() -> None:
    x = f32(4, 3).requires_grad_()
    run = trained(lambda x: x.exp().tanh().exp(), x)
    results = run(x)
    kept = [weakref.ref(t) for t in results.grad_fn.saved_tensors if t is not x]
    gradient = torch.ones(4, 3)
    results.backward(gradient)
    kept.append(weakref.ref(gradient))
    del results, gradient
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)


def test_inputs_without_a_gradient_path_keep_the_wrappers() -> None:
    """AOTAutograd detaches those that others computed."""
    run = compiled(lambda x, y: x * y.detach() + y.argmax())
    x, y = f32(4, 3).requires_grad_(), f32(4, 3).requires_grad_() * 2
    assert [is_direct(run(x, y)) for _ in range(3)] == [False] * 3
    with pytest.raises(RuntimeError, match="to not have been used"):
        torch.autograd.grad(run(x, y).sum(), y)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(-1),
        lambda x: (y := x * 2, y.view(-1)),
        lambda x: x.detach().add_(1) * x,
    ],
)
def test_views_and_updates_keep_the_wrappers(function: Function) -> None:
    run = compiled(function)
    for _ in range(3):
        mine, theirs = (f32(4, 3).requires_grad_() for _ in range(2))
        results, expected = run(mine), function(theirs)
        assert_same(results, expected)
        assert_same(mine, theirs)
        assert not is_direct(results)


def test_subclasses_are_unwrapped_and_their_gradients_refused() -> None:
    run = compiled(lambda x: x.sin() * 2)
    x = TwoTensor(f32(2, 3), f32(2, 3) + 1).requires_grad_()
    assert [is_direct(run(x)) for _ in range(2)] == [False] * 2
    plain = f32(2, 3).requires_grad_()
    results = trained(lambda x: x.sin() * 2, plain)(plain)
    with pytest.raises(RuntimeError, match="tensor subclass"):
        results.backward(TwoTensor(f32(2, 3), f32(2, 3)))


def test_under_autocast_later_calls_agree_with_eager() -> None:
    run, found = compiled(linear), []
    for _ in range(3):
        x = f32(4, 3).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            results, expected = run(x), linear(x)
        assert results.dtype == torch.bfloat16
        assert_same(results, expected)
        taken = [torch.autograd.grad(r.float().sum(), [x, weight]) for r in (results, expected)]
        assert_same(*taken)
        found.append(is_direct(results))
    assert found == [False, True, True]


def test_gradients_that_are_disabled_for_a_call_are_not_recorded() -> None:
    run, x = compiled(pointwise), f32(4, 3).requires_grad_()
    for _ in range(2):
        run(x).sum().backward()
        with torch.no_grad():
            assert not run(x).requires_grad


def test_compiled_autograd_captures_a_direct_call() -> None:
    x = f32(4, 3).requires_grad_()
    run = trained(pointwise, x)
    wanted = torch.autograd.grad(pointwise(x).sum(), x)[0]
    for _ in range(2):
        x.grad = None
        with compiled_autograd._enable(torch.compile(backend="eager")):
            results = run(x)
            assert is_direct(results)
            results.sum().backward()
        assert x.grad is not None
        assert_same(x.grad, wanted)
