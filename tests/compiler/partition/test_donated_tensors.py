"""partition.donate: the saved tensors that a compiled backward writes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chains import Operation, Steps, chains, values_of
from hypothesis import given
from judge import assert_same, compiled, copies
from programs import f32
from property_settings import property_settings
from torch.autograd.graph import saved_tensors_hooks

from tcdebug.compiler import pipeline
from tcdebug.compiler.partition import donated_tensors

Function = Callable[..., torch.Tensor]
OFF = {"off": ["partition.donate"]}


def written_over(function: Function, *inputs: torch.Tensor, **options: list[str]) -> int:
    """How many saved tensors a compiled backward changes. Its gradients must be eager's."""
    torch._dynamo.reset()
    given = [t.requires_grad_() for t in inputs]
    mine, theirs = copies(given), copies(given)
    function(*theirs).backward()
    kept: list[torch.Tensor] = []

    def keep(saved: torch.Tensor) -> torch.Tensor:
        kept.append(saved)
        return saved

    with saved_tensors_hooks(keep, lambda saved: saved):
        result = compiled(function, options=options)(*mine)
    before = [t.clone() for t in kept]
    result.backward()
    assert_same([t.grad for t in mine], [t.grad for t in theirs])
    assert_same(mine, given)
    return sum(not torch.equal(t, old) for t, old in zip(kept, before, strict=True))


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).sin() @ w).sum()


def test_backward_writes_over_a_saved_product() -> None:
    assert written_over(product, f32(8, 8), f32(8, 8)) == 1


def test_the_unit_keeps_all_saved_tensors() -> None:
    assert written_over(product, f32(8, 8), f32(8, 8), **OFF) == 0


def of_views(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return (y.sin() @ w).sum() + (y.view(4, 2, 8).exp().flatten(0, 1) @ w @ w).sum()


def read_by_a_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w @ w).sum()


@pytest.mark.parametrize(("function", "expected"), [(of_views, 1), (read_by_a_product, 0)])
def test_no_memory_is_written_over_that_something_else_reads(
    function: Function, expected: int
) -> None:
    """Without min-cut, a product, a view of it and the exponentials of the view are saved."""
    off = ["partition.min_cut"]
    assert written_over(function, f32(8, 8), f32(8, 8), off=off) == expected


def test_a_tensor_is_kept_whose_view_a_forward_in_eager_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A forward that failed to compile narrows no list."""
    report = donated_tensors.report

    def of_backward(module: Any, schedule: Any, direction: str) -> None:
        if direction == "backward":
            report(module, schedule, direction)

    monkeypatch.setattr(donated_tensors, "report", of_backward)
    assert written_over(of_views, f32(8, 8), f32(8, 8), off=["partition.min_cut"]) == 1


def test_a_tensor_that_is_saved_and_returned_is_not_written_over() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ w
        return y, (y.sin() @ w).sum()

    x, w = f32(8, 8).requires_grad_(), f32(8, 8)
    shown, loss = compiled(function)(x, w)
    before = shown.detach().clone()
    loss.backward()
    assert_same(shown.detach(), before)


def test_a_copy_that_a_pass_removes_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTAutograd lists the copy, which shares no memory in the traced program."""

    def without_copies(graph: torch.fx.Graph) -> bool:
        copies = graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)
        for node in copies:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        return bool(copies)

    passes = {"passes.without_copies": without_copies, **pipeline.ATEN}
    monkeypatch.setattr(pipeline, "ATEN", passes)
    off = ["partition.min_cut", "passes.noop_elimination"]

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x.clone() * (w @ w)).sin() @ w).sum()

    assert written_over(function, f32(8, 8), f32(8, 8), off=off) == 1  # the product of weights


def test_a_first_backward_that_keeps_the_graph_gives_the_same_gradient_twice() -> None:
    x, w = f32(8, 8).requires_grad_(), f32(8, 8)
    loss = compiled(product)(x, w)
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert_same(second, first)


def test_a_later_backward_may_keep_a_graph_that_is_not_written_over() -> None:
    x, w = f32(8, 8).requires_grad_(), f32(8, 8).requires_grad_()
    step = compiled(read_by_a_product)
    step(x, w).backward()
    loss = step(x, w)
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    assert_same(torch.autograd.grad(loss, (x, w)), first)


STEPS: list[Operation] = [
    lambda x, y: x @ y,
    lambda x, y: x.sin() * y,
    lambda x, y: x.exp() * 0.1 - x.amax(-1, keepdim=True),
    lambda x, y: x.t() * y.sigmoid(),
    lambda x, y: (x + y).clone().view(4, 2, 8).flatten(0, 1),
    lambda x, y: x / (1 + y.square().sum(0)),
    lambda x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
]


@property_settings(12)
@given(chains(STEPS, 6))
def test_any_training_step_has_the_gradients_of_eager(steps: Steps) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        values = values_of(steps, STEPS, x, w)
        return (values[-1] @ values[-2] + w + x).square().sum()

    written_over(function, f32(8, 8) * 0.3, f32(8, 8) * 0.3)
