"""Units inside the subgraphs of higher-order operators are asked about, and their code is legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor import decomposition
from torch._inductor.lowering import lowerings
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

aten = torch.ops.aten
UNIT = "decompose.aten.softplus.default"
NO_KERNELS = ("lower", "fuse", "codegen")
"""Off in most compiles, so that none waits for g++."""


class Softplus(torch.autograd.Function):
    """Softplus with its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return softplus(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


@torch.compiler.nested_compile_region
def region(x: torch.Tensor) -> torch.Tensor:
    return softplus(x) + 1


def start() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


HIGHER: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: softplus(y), lambda y: y - 1, (x,)),
    "while_loop": lambda x: while_loop(
        lambda k, y: k < 2, lambda k, y: (k + 1, softplus(y)), (start(), x)
    ),
    "scan": lambda x: scan(lambda c, y: (softplus(c + y), c * 2), torch.zeros(3), x),
    "map": lambda x: map_rows(lambda y: softplus(y) + 1, x),
    "associative_scan": lambda x: associative_scan(
        lambda a, b: softplus(a) + softplus(b), x, 0, combine_mode="generic"
    ),
    "nested_compile_region": lambda x: region(x) * region(x * 2),
    "checkpoint": lambda x: checkpoint(lambda y: softplus(y) * 2, x, use_reentrant=False),
    "autograd_function": lambda x: Softplus.apply(x * 2),
}


def compiled(
    function: Callable[..., Any], x: torch.Tensor, *off: str
) -> tuple[list[torch.Tensor], list[Decision]]:
    """Return the results of a compiled call, and the decisions."""
    torch._dynamo.reset()
    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True),
        inductor.switched(Toggles.parse(off), EventLog(None)) as gate,
    ):
        results = torch.compile(function)(x)
    return torch.utils._pytree.tree_leaves(results), gate.decisions


def right(results: list[torch.Tensor], function: Callable[..., Any], x: torch.Tensor) -> bool:
    eager = torch.utils._pytree.tree_leaves(function(x))
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(results, eager, strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize("name", HIGHER)
def test_a_fault_inside_a_subgraph_appears_only_with_its_unit_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
        return torch.log1p(torch.exp(x)) * 1.5

    monkeypatch.setitem(decomposition.decompositions, aten.softplus.default, wrong)
    decomposition.fast_random_decomps.cache_clear()
    function, x = HIGHER[name], torch.arange(6.0).reshape(2, 3) / 4
    x.requires_grad_(name in ("checkpoint", "autograd_function"))
    try:
        results, decisions = compiled(function, x, *NO_KERNELS)
        assert not right(results, function, x)
        assert UNIT in {d.unit for d in decisions if d.allowed}
        results, _ = compiled(function, x, *NO_KERNELS, UNIT)
        assert right(results, function, x)
    finally:
        decomposition.fast_random_decomps.cache_clear()


@pytest.mark.slow
def test_a_fault_inside_a_score_function_appears_only_with_the_attention_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(q: torch.Tensor) -> torch.Tensor:
        return flex_attention(
            q, q * 2, q + 1, score_mod=lambda s, b, h, i, j: torch.tanh(s) + i - j
        )

    monkeypatch.setitem(lowerings, aten.tanh.default, lowerings[aten.sin.default])
    q = torch.randn(1, 2, 32, 16, generator=torch.Generator().manual_seed(0))
    results, decisions = compiled(function, q)
    assert not right(results, function, q)
    assert [d.subject for d in decisions if d.unit == "lower.flex_attention"] == ["flex_attention"]
    results, decisions = compiled(function, q, "lower.flex_attention", "fuse", "codegen")
    assert right(results, function, q)
    assert "lower.aten.tanh.default" not in {d.unit for d in decisions}


def test_a_fault_of_the_call_of_a_region_appears_only_if_the_region_is_not_inlined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return region(x) * region(x.flip(0))

    call = torch.ops.higher_order.invoke_subgraph
    lowered = lowerings[call]

    def negated(subgraph: Any, name: str, first: Any, *others: Any) -> Any:
        return lowered(subgraph, name, lowerings[aten.neg.default](first), *others)

    def step(function: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
        result = function(x)
        return [result.detach(), *torch.autograd.grad(result.sum(), x)]

    monkeypatch.setitem(lowerings, call, negated)
    for off, is_right in (("only:lower.invoke_subgraph", False), ("all", True)):
        torch._dynamo.reset()
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        expected = step(function, x.detach().clone().requires_grad_())
        with inductor.switched(Toggles.parse([off]), EventLog(None)) as gate:
            results = step(torch.compile(function), x)
        pairs = zip(results, expected, strict=True)
        assert [torch.allclose(a, b, atol=1e-5) for a, b in pairs] == [is_right, is_right]
        assert sum(d.unit == "lower.invoke_subgraph" for d in gate.decisions) == 4


def swapped(predicate: Any, first: Any, second: Any, *operands: Any) -> Any:
    return CONDITION(predicate, second, first, *operands)


def refused(*arguments: Any) -> Any:
    raise NotImplementedError("no loops")


CONDITION = lowerings[torch.ops.higher_order.cond]
CONTROL_FLOW: dict[str, tuple[Any, Any]] = {
    "lower.cond": (torch.ops.higher_order.cond, swapped),
    "lower.while_loop": (torch.ops.higher_order.while_loop, refused),
    "lower.scan": (torch.ops.higher_order.while_loop, refused),
    "lower.map_impl": (torch.ops.higher_order.while_loop, refused),
}
"""Unit -> an operator that it needs, and a wrong lowering of that operator."""


@pytest.mark.sampled
@pytest.mark.parametrize("unit", CONTROL_FLOW)
def test_a_fault_of_control_flow_appears_only_with_its_unit_on(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lowerings, *CONTROL_FLOW[unit])
    function = HIGHER[unit.removeprefix("lower.").removesuffix("_impl")]
    x = torch.arange(6.0).reshape(2, 3) / 4
    fails = False
    try:
        results, _ = compiled(function, x, f"only:{unit}")
        fails = not right(results, function, x)
    except torch._dynamo.exc.BackendCompilerFailed:
        fails = True
    assert fails
    results, decisions = compiled(function, x, "all")
    assert right(results, function, x)
    assert [d.unit for d in decisions if d.unit in CONTROL_FLOW] == [unit]


def test_control_flow_in_eager_keeps_strides_and_gradients() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: torch.sin(y).t(), lambda y: (y - 1).t(), (x,))

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    x = torch.arange(6.0).reshape(2, 3)
    (result,), _ = compiled(turned, x, "all")
    assert result.stride() == turned(x).stride() == (1, 3)
    torch._dynamo.reset()
    x.requires_grad_()
    with inductor.switched(Toggles.parse(["all"]), EventLog(None)) as gate:
        (gradient,) = torch.autograd.grad(torch.compile(function)(x).sum(), x)
    assert torch.allclose(gradient, torch.cos(x))
    assert [d.unit for d in gate.decisions].count("lower.cond") == 2


@pytest.mark.slow
@pytest.mark.parametrize("off", ["decompose", "all"])
def test_attention_compiles_with_everything_off_outside_its_template(off: str) -> None:
    """A template calls no ATen kernels, and allocates memory for as many threads as torch has."""

    def function(q: torch.Tensor) -> torch.Tensor:
        return flex_attention(
            q, q * 2, q + 1, score_mod=lambda s, b, h, i, j: s + torch.tanh(i - j)
        )

    q = torch.randn(1, 2, 32, 16, generator=torch.Generator().manual_seed(0))
    results, decisions = compiled(function, q, off)
    assert right(results, function, q)
    has_template = "lower.flex_attention" in {d.unit for d in decisions if d.allowed}
    assert has_template != ("config.cpp.threads" in {d.unit for d in decisions})
