"""Backward: gradients are those of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import assert_same, compiled, copies, gradients
from programs import f32, i64, positive
from torch import nn
from torch.nn import functional as F

TABLE: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "mul_exp": (lambda x, y: (x * y).exp(), [f32(4, 5), f32(5)]),
    "division": (lambda x, y: x / y + y.sqrt(), [f32(4, 5), positive(4, 1)]),
    "powers": (lambda x, y: x**3 + positive(5) ** y, [f32(5), f32(5)]),
    "tanh_sigmoid": (lambda x: x.tanh() * x.sigmoid() + F.softplus(x), [f32(30)]),
    "activations": (lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.relu(x), [f32(30)]),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) * 2 + x.abs(), [f32(30)]),
    "where": (lambda x, y: torch.where(x > 0, x, y * 2), [f32(9), f32(9)]),
    "softmax": (lambda x: torch.softmax(x, -1), [f32(4, 9)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [f32(4, 9)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, i64(10, 8)), [f32(8, 10)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (9,), w, b), [f32(4, 9), f32(9), f32(9)]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [f32(3, 2, 4)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [f32(2, 4, 3)]),
    "variance": (lambda x: x.var(-1) + x.std(), [f32(4, 9)]),
    "products": (lambda x: x.prod(1), [positive(4, 5)]),
    "amax": (lambda x: x.amax(1) + x.max(0).values.sum(), [f32(4, 9)]),
    "cumsum": (lambda x: x.cumsum(1), [f32(4, 9)]),
    "views": (lambda x: x.t().reshape(2, -1)[:, ::2].unsqueeze(0), [f32(4, 6)]),
    "cat_pad": (lambda x, y: F.pad(torch.cat([x, y], 1), (1, 1)), [f32(2, 3), f32(2, 2)]),
    "index": (lambda x: x[i64(6, 9)] * 2, [f32(6, 3)]),
    "gather": (lambda x: x.gather(1, i64(4, 6, 3)), [f32(6, 4)]),
    "embedding": (lambda w: F.embedding(i64(9, 2, 3), w), [f32(9, 4)]),
    "matmul": (lambda x, w, b: F.linear(x, w, b).relu(), [f32(4, 5), f32(6, 5), f32(6)]),
    "bmm": (lambda x, y: x @ y, [f32(2, 4, 5), f32(2, 5, 3)]),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1).relu(), [f32(1, 2, 6, 6), f32(3, 2, 3, 3)]),
    "pools": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), [f32(1, 2, 6, 6)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [f32(1, 2, 8, 4)] * 3),
    "expand": (lambda x: x.expand(4, 3, 5) * f32(4, 3, 5), [f32(3, 1)]),
    "two_outputs": (lambda x: (x.sin(), (x * 2).sum()), [f32(7)]),
    "detached": (lambda x: x * x.detach(), [f32(7)]),
    "bfloat16": (lambda x: (x * 2).tanh(), [f32(7).bfloat16()]),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("name", TABLE)
def test_gradients_are_those_of_eager(name: str) -> None:
    function, inputs = TABLE[name]
    wanted = [i.clone().requires_grad_() for i in inputs]
    assert_same(gradients(compiled(function), copies(wanted)), gradients(function, wanted))


def test_only_inputs_that_require_a_gradient_get_one() -> None:
    x, y = f32(4).requires_grad_(), f32(4)
    compiled(lambda a, b: (a * b).sum())(x, y).backward()
    assert torch.equal(x.grad, y)
    assert y.grad is None


def test_gradients_accumulate_over_calls() -> None:
    f = compiled(lambda a: (a * 3).sum())
    x = f32(4).requires_grad_()
    f(x).backward()
    f(x).backward()
    assert x.grad.tolist() == [6.0, 6.0, 6.0, 6.0]


def test_a_retained_backward_can_run_twice() -> None:
    x = f32(4).requires_grad_()
    y = compiled(lambda a: (a * a).sum())(x)
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, 4 * x)


def test_a_gradient_through_a_mutated_input() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.add_(y).mul_(y)
        return z

    inputs = [f32(5).requires_grad_(), f32(5).requires_grad_()]
    assert_same(gradients(compiled(function), copies(inputs)), gradients(function, inputs))


@pytest.mark.parametrize("off", ["", "partition.min_cut"])
@pytest.mark.parametrize(
    "read",
    [lambda m: m.tanh(), lambda m: m.t().sigmoid(), lambda m: m[1:].to(torch.float64) + 1],
    ids=["itself", "a view", "a part"],
)
def test_backward_reads_inputs_as_they_were_before_forward_wrote_to_them(
    read: Callable[[torch.Tensor], torch.Tensor], off: str
) -> None:
    def function(x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        z = x / read(memory)
        memory.zero_()
        return z

    inputs = [f32(1).requires_grad_(), f32(3, 4)]
    options = {"off": [off]} if off else {}
    found = gradients(compiled(function, options=options), copies(inputs))
    assert_same(found, gradients(function, inputs))


def test_a_model_trains_as_in_eager() -> None:
    def losses(wrap: Callable[[nn.Module], Callable[..., torch.Tensor]]) -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run, found = wrap(model), []
        for step in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(run(f32(7, 6) + step), i64(3, 7))
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(compiled) == pytest.approx(losses(lambda model: model), rel=1e-4)


def test_a_smaller_budget_saves_less_for_backward_and_gives_the_same_gradients() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.softmax(x @ w, -1)
        return x

    kept: dict[float, int] = {}
    found = {}
    for budget in (1.0, 0.0):
        torch._dynamo.reset()
        inputs = [f32(16, 16).requires_grad_(), f32(16, 16).requires_grad_()]
        saved: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: saved.append(t) or t, lambda t: t
        ):
            f = compiled(function, options={"memory_budget": budget})
            found[budget] = gradients(f, inputs)
        kept[budget] = sum(t.numel() for t in saved)
    assert kept[0.0] < kept[1.0]
    assert_same(found[0.0], found[1.0])


def test_the_partition_that_saves_less_gives_the_same_gradients() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.sin().exp() + 1, -1).cos()

    inputs = [f32(4, 9).requires_grad_()]
    minimal = gradients(compiled(function), copies(inputs))
    torch._dynamo.reset()
    off = compiled(function, options={"off": ["partition"]})
    assert_same(gradients(off, copies(inputs)), minimal)


def test_equal_calls_give_separate_results() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.layer_norm(x, (4,)), F.layer_norm(x, (4,))

    f = compiled(function, options={"off": ["decompose"]})
    first, second = f(f32(3, 4).requires_grad_())
    expected = second.detach().clone()
    first.detach().zero_()
    assert_same(second.detach(), expected)
