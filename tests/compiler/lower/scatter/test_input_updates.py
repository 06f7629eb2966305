"""In-place updates: kernels store into inputs after they have read what they overwrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from externs import compiled_with_reasons
from hypothesis import example, given
from hypothesis import strategies as st
from judge import assert_as_eager, assert_same, compiled, copies, gradients
from programs import f32, i64, swizzled
from property_settings import property_settings
from stages import at_stage, capture
from updates import STATEMENTS

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.ir.graph import Pointwise, written
from tcdebug.compiler.schedule.kernel import Kernel

COPY = "aten.copy_.default"


def added(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x


def centered(x: torch.Tensor) -> torch.Tensor:
    x.sub_(x.mean(-1, keepdim=True)).div_(x.std(-1, keepdim=True))
    return x.softmax(-1)


def column_statistics(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """The old and new values of a row are used, before and after the sweep that computes it."""
    y = (x - seen) * x.mean(0)
    seen.lerp_(x.mean(0), 0.1)
    return y / seen


def of_views(x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[3:9].add_(1)
    x.t().mul_(2)
    x[0].copy_(x[1])
    return x + 1


def old_and_new(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = x.clone()
    x.mul_(x.sum(0))
    return old * x, old.sum(), old.t() @ x


def accumulated(x: torch.Tensor) -> torch.Tensor:
    x.add_(x.cumsum(-1))
    return x.sum()


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    y.mul_(x)
    return x * y


STORED: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "added": (added, lambda: [f32(4, 6)]),
    "transposed": (added, lambda: [swizzled(4, 6)]),
    "strided": (added, lambda: [f32(8, 9)[1::2, ::3]]),
    "no_dimension": (added, lambda: [f32()]),
    "no_element": (added, lambda: [f32(0, 3)]),
    "bfloat16": (added, lambda: [f32(33).bfloat16()]),
    "integers": (added, lambda: [i64(9, 7)]),
    "centered": (centered, lambda: [f32(7, 33)]),
    "column_statistics": (column_statistics, lambda: [f32(40, 70), f32(70)]),
    "of_views": (of_views, lambda: [f32(4, 6)]),
    "old_and_new": (old_and_new, lambda: [f32(6, 6)]),
    "accumulated": (accumulated, lambda: [f32(4, 9)]),
    "two": (two, lambda: [f32(4, 4), f32(4, 4) + 1]),
}


@pytest.mark.parametrize("name", STORED)
def test_a_kernel_stores_an_update_into_the_input(name: str) -> None:
    function, inputs = STORED[name]
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, inputs())
    assert COPY not in left


def flipped(x: torch.Tensor) -> torch.Tensor:
    x.copy_(x.flip(0))
    return x + 1


LEFT: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]], str]] = {
    "a product": (lambda x, y: x.addmm_(y, y), lambda: [f32(4, 4), f32(4, 4)], "only a copy"),
    "strides unknown": (
        lambda x, y: x.copy_(y * 2),
        lambda: [torch.zeros(50).as_strided((3, 4), (3, 5)), f32(3, 4)],
        "elements of the input may share memory",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_plain_copies_are_left_to_aten(name: str) -> None:
    function, inputs, reason = LEFT[name]
    once, left = compiled_with_reasons(function)
    assert_as_eager(once, function, inputs())
    assert left[COPY] == reason


def test_elements_that_are_read_later_are_not_overwritten() -> None:
    """The flip is stored in a buffer first: it reads elements that a store would overwrite."""
    captured = capture(flipped, f32(6, 4))
    kernels = [s for s in captured.schedules[0].steps if isinstance(s, Kernel)]
    stores = [(len(k.nodes), any(written(n) for n in k.nodes)) for k in kernels]
    assert stores == [(2, False), (1, True)]
    assert_as_eager(compiled(flipped), flipped, [f32(6, 4)])


@pytest.mark.parametrize("dynamic", [True, False])
def test_sizes_may_change_between_updates(dynamic: bool) -> None:
    once = compiled(centered, dynamic=dynamic)
    for inputs in ([f32(5, 9)], [f32(9, 5).t()], [f32(2, 30)]):
        assert_as_eager(once, centered, inputs)


def test_the_kernel_of_a_batch_norm_stores_its_statistics() -> None:
    x = f32(2, 3, 4, 4).requires_grad_()
    mine, theirs = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    once, left = compiled_with_reasons(mine)
    for _ in range(2):
        (a,), (b,) = copies([x]), copies([x])
        assert_same(gradients(once, [a]), gradients(theirs, [b]))
    assert_same(dict(mine.named_buffers()), dict(theirs.named_buffers()))
    assert COPY not in left


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_a_step_of_an_optimizer_consists_of_kernels(optimizer: Any) -> None:
    mine, theirs = f32(5, 7).requires_grad_(), f32(5, 7).requires_grad_()
    first, second = (optimizer([p], lr=0.1, weight_decay=0.01) for p in (mine, theirs))
    mine.grad, theirs.grad = f32(5, 7), f32(5, 7)
    step, left = compiled_with_reasons(first.step)
    for _ in range(3):
        step()
        second.step()
    torch.testing.assert_close(mine, theirs)
    assert mine._version == theirs._version
    assert left == {}


@property_settings(25)
@example(chosen=[8, 0, 13], off=[])
@given(
    st.lists(st.integers(0, len(STATEMENTS) - 1), min_size=1, max_size=6),
    st.sampled_from([[], ["fuse.inline"], ["fuse.reduction"], ["passes.updates_in_place"]]),
)
def test_updates_in_any_order_agree_with_eager(chosen: list[int], off: list[str]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for k in chosen:
            STATEMENTS[k](x, y)
        return (x * y.t()).sum(0)

    torch._dynamo.reset()
    once = at_stage("scheduled", function, toggles=Toggles.parse(off))
    assert_as_eager(once, function, [f32(5, 5), f32(5, 5) + 0.5])


def test_an_update_can_be_switched_off() -> None:
    captured = capture(added, f32(4), toggles=Toggles.parse([f"lower.{COPY}"]))
    nodes = captured.schedules[0].graph.nodes
    assert not any(isinstance(n, Pointwise) and n.into for n in nodes)
    assert nodes[-1].origin.op == COPY
