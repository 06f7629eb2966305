"""Attention masks that mask nothing are removed, and the result stays the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, ops, torch_graph
from judge import assert_as_eager, assert_same, compiled, copies, gradients
from programs import f32
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from traced_on_cuda import cuda

from tcdebug.compiler.pregrad.redundant_masks import redundant_masks

ATTENTION = F.scaled_dot_product_attention
Program = Callable[..., Any]

HEADS = (3, 2, 16, 4)
"""Batch, heads, length, width."""


@pytest.fixture
def _any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes few keys, or an unknown number of them, as good on a CPU as elsewhere."""
    monkeypatch.setattr(sys.modules[redundant_masks.__module__], "SHORTEST", 0)


def rewritten(function: Program, **options: Any) -> Program:
    """The function with only this pass applied to it."""

    def backend(module: torch.fx.GraphModule, _: Any) -> Program:
        return applied(redundant_masks, module)[1].forward

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, **options)


def after(function: Program, *inputs: torch.Tensor) -> tuple[bool, torch.fx.GraphModule]:
    """Whether the pass changed the graph of a function, and the graph."""
    torch._dynamo.reset()
    return applied(redundant_masks, torch_graph(function, *inputs))


def merged(heads: torch.Tensor) -> torch.Tensor:
    """Joins the heads after attention, as models do."""
    batch, number, length, width = heads.shape
    return heads.transpose(1, 2).reshape(batch, length, number * width)


def places(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions of queries and of keys, in four dimensions."""
    along = torch.arange(q.shape[2]) + 0
    return along[None, None, :, None], along[None, None, None, :]


def as_bert(q: torch.Tensor) -> Any:
    """Two layers, as transformers 5 writes them for a text of unknown length."""
    queries, _ = places(q)
    mask = (queries >= 0).expand(q.shape[0], -1, q.shape[2], q.shape[2])
    first = ATTENTION(q, q, q, attn_mask=mask, dropout_p=0.0, is_causal=False)
    return merged(ATTENTION(first, q, q, mask))


def as_former_bert(q: torch.Tensor) -> Any:
    """The mask that transformers 4 writes."""
    batch, _, length, _ = q.shape
    seen = torch.ones(batch, length)[:, None, None, :].expand(batch, 1, length, length)
    inverted = torch.tensor(1.0, dtype=q.dtype) - seen.to(q.dtype)
    mask = inverted.masked_fill(inverted.to(torch.bool), torch.finfo(q.dtype).min)
    return merged(ATTENTION(q, q, q, attn_mask=mask))


def as_esm(q: torch.Tensor) -> Any:
    seen = torch.ones(q.shape[0], q.shape[2])[:, None, None, :].to(dtype=q.dtype)
    mask = (1.0 - seen) * torch.finfo(q.dtype).min
    return merged(ATTENTION(q, q, q, attn_mask=mask[:, :, :, : q.shape[2]]))


def as_t5(q: torch.Tensor) -> Any:
    """A positional bias that is zero where the mask is true."""
    queries, _ = places(q)
    seen = (queries >= 0).expand(q.shape[0], -1, q.shape[2], q.shape[2])
    bias = torch.where(seen, torch.zeros((1, *q.shape[1:3], q.shape[2])), torch.finfo(q.dtype).min)
    return merged(ATTENTION(q, q, q, attn_mask=bias[:, :, :, : q.shape[2]]))


def in_a_window(q: torch.Tensor) -> Any:
    """The mask of ModernBERT for a text that is shorter than the window."""
    queries, keys = places(q)
    mask = queries.new_ones((), dtype=torch.bool) & (abs(queries - keys) <= 16).to(q.device)
    return merged(ATTENTION(q, q, q, attn_mask=mask & (queries >= 0)))


def of_three_dimensions(q: torch.Tensor) -> Any:
    """No fused kernel takes such a mask, on a CPU or a GPU."""
    return merged(ATTENTION(q, q, q, torch.ones(1, 16, 16, dtype=torch.bool)))


def grouped(q: torch.Tensor) -> Any:
    mask = torch.ones(16, 16, dtype=torch.bool)
    return ATTENTION(q, q[:, :1], q[:, :1], mask, enable_gqa=True, scale=0.7)


def mask_is_returned(q: torch.Tensor) -> Any:
    mask = torch.zeros(16, 16)
    return ATTENTION(q, q, q, mask), mask


REMOVED: dict[str, Program] = {
    "bert": as_bert,
    "former bert": as_former_bert,
    "esm": as_esm,
    "t5": as_t5,
    "window": in_a_window,
    "three dimensions": of_three_dimensions,
    "grouped heads": grouped,
    "returned": mask_is_returned,
}


def masks(module: torch.fx.GraphModule) -> list[Any]:
    """The mask of each attention."""
    nodes = [n for n in module.graph.nodes if n.target is ATTENTION]
    return [n.args[3] if len(n.args) > 3 else n.kwargs["attn_mask"] for n in nodes]


@pytest.mark.parametrize("name", REMOVED)
def test_a_mask_that_masks_nothing_is_removed(name: str) -> None:
    changed, module = after(REMOVED[name], f32(*HEADS))
    assert changed
    assert set(masks(module)) == {None}


def test_the_computation_of_the_mask_is_removed_too() -> None:
    _, module = after(as_bert, f32(*HEADS))
    assert ops(module) == {"scaled_dot_product_attention": 2, "transpose": 1, "reshape": 1}


@pytest.mark.usefixtures("_any_length")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", REMOVED)
def test_values_and_strides_are_those_of_eager(name: str, dynamic: bool) -> None:
    function = REMOVED[name]
    once = rewritten(function, dynamic=dynamic)
    # without a three-dimensional mask, another kernel computes it
    mine, theirs = once(f32(*HEADS)), function(f32(*HEADS))
    assert_same(mine, theirs, exact=name != "three dimensions")


@pytest.mark.usefixtures("_any_length")
@pytest.mark.parametrize("function", [as_bert, as_former_bert])
def test_one_compile_serves_many_sizes(function: Program) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Program:
        changed, module = applied(redundant_masks, module)
        assert changed
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    once = torch.compile(function, backend=backend, dynamic=True)
    for batch, length in ((3, 8), (5, 6), (2, 9)):
        q = f32(batch, 2, length, 4)
        assert_same(once(q), function(q))
    assert len(graphs) == 1


def written(write: Callable[[torch.Tensor], object]) -> Program:
    """A mask that is written to before attention reads it."""

    def function(q: torch.Tensor) -> Any:
        mask = torch.zeros(16, 16)
        write(mask)
        return ATTENTION(q, q, q, mask)

    return function


def written_in_between(q: torch.Tensor) -> Any:
    seen = torch.ones(1, 1, 16, 1, dtype=torch.bool)
    mask = seen.expand(3, 1, 16, 16)
    first = ATTENTION(q, q, q, attn_mask=mask)
    seen[:, :, 2:4].logical_not_()
    return first, ATTENTION(q, q, q, attn_mask=mask)


def within_vmap(q: torch.Tensor) -> Any:
    return torch.vmap(lambda x: ATTENTION(x, x, x, torch.zeros(16, 16)))(q)


def within_grad(q: torch.Tensor) -> Any:
    return torch.func.grad(lambda x: ATTENTION(x, x, x, torch.zeros(16, 16)).sum())(q)


def learnt(q: torch.Tensor) -> Any:
    mask = torch.zeros(16, 16).requires_grad_()
    return torch.autograd.grad(ATTENTION(q, q, q, mask).sum(), mask)


def in_a_checkpoint(q: torch.Tensor) -> Any:
    mask = torch.zeros(16, 16)
    return checkpoint(lambda x: ATTENTION(x, x, x, mask), q, use_reentrant=False)


def causal(q: torch.Tensor) -> Any:
    queries, keys = places(q)
    return ATTENTION(q, q, q, keys <= queries)


KEPT: dict[str, Program] = {
    "causal": causal,
    "of an input": lambda q: ATTENTION(q, q, q, (q[..., :1] * 0 == 0).expand(3, 2, 16, 16)),
    "one key is not seen": lambda q: ATTENTION(q, q, q, (torch.arange(16) < 15)[None]),
    "less than zero": lambda q: ATTENTION(q, q, q, torch.full((16, 16), -1.0)),
    "filled": written(lambda mask: mask.fill_(-1)),
    "a row is set": written(lambda mask: mask.__setitem__(2, -1)),
    "a view is filled": written(lambda mask: mask.view(-1)[3:7].fill_(-1)),
    "added to": written(lambda mask: mask.t().add_(-1)),
    "out": written(lambda mask: torch.add(torch.ones(16, 16), -2, out=mask)),
    "between": written_in_between,
    "vmap": within_vmap,
    "grad": within_grad,
    "checkpoint": in_a_checkpoint,
    "nothing": lambda q: ATTENTION(q, q, q, is_causal=True),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_mask_that_may_mask_something_stays(name: str) -> None:
    changed, _ = after(KEPT[name], f32(*HEADS))
    assert not changed
    assert_as_eager(rewritten(KEPT[name]), KEPT[name], [f32(*HEADS)], exact=True)


def test_a_mask_that_needs_a_gradient_stays() -> None:
    assert_same(rewritten(learnt)(f32(*HEADS)), learnt(f32(*HEADS)))


def test_attention_with_dropout_keeps_its_mask() -> None:
    assert not after(lambda q: ATTENTION(q, q, q, torch.zeros(16, 16), 0.5), f32(*HEADS))[0]


def test_a_mask_that_promotes_the_dtype_of_the_result_stays() -> None:
    """Eager rejects this, except for tensor subclasses."""
    module = torch_graph(as_esm, f32(*HEADS))
    for node in module.graph.nodes:
        if node.target is ATTENTION:
            node.meta["example_value"] = node.meta["example_value"].new_empty(6, *HEADS[1:])
    changed, _ = applied(redundant_masks, module)
    assert not changed


def test_on_a_cpu_a_mask_over_few_keys_stays() -> None:
    """Without a mask, a query of NaNs gets zeros if there are fewer keys than lanes of a vector."""
    q = f32(3, 2, 15, 4)
    assert not after(as_bert, q)[0]
    q[0, 0, 3] = float("nan")
    assert_same(rewritten(as_bert)(q), as_bert(q))


def test_a_causal_attention_with_a_mask_stays() -> None:
    """Eager rejects both at once, and the compiled program must do so too."""
    module = torch_graph(as_bert, f32(*HEADS))
    for node in module.graph.nodes:
        if node.target is ATTENTION:
            node.kwargs = {**node.kwargs, "is_causal": True}
    changed, _ = applied(redundant_masks, module)
    assert not changed


def test_a_result_that_is_returned_keeps_its_layout() -> None:
    def function(q: torch.Tensor) -> torch.Tensor:
        return ATTENTION(q, q, q, torch.ones(1, 16, 16, dtype=torch.bool))

    q = f32(3, 16, 2, 4).transpose(1, 2)
    changed, module = after(function, q)
    assert changed
    assert ops(module) == {"scaled_dot_product_attention": 1, "clone": 1}
    assert_as_eager(rewritten(function), function, [q])


def test_a_result_whose_layout_does_not_matter_is_not_copied() -> None:
    q = f32(3, 16, 2, 4).transpose(1, 2)
    _, module = after(of_three_dimensions, q)
    assert ops(module) == {"scaled_dot_product_attention": 1, "transpose": 1, "reshape": 1}
    attention, transposed, reshaped, _ = list(module.graph.nodes)[-4:]
    assert attention.meta["example_value"].stride() == (128, 4, 8, 1)
    assert transposed.meta["example_value"].stride() == (128, 8, 4, 1)
    assert reshaped.meta["example_value"].stride() == (128, 8, 1)
    assert_as_eager(rewritten(of_three_dimensions), of_three_dimensions, [q])


def test_a_copy_does_not_become_a_view_of_a_tensor_that_is_read_again() -> None:
    def function(q: torch.Tensor) -> Any:
        result = ATTENTION(q, q, q, torch.ones(1, 16, 16, dtype=torch.bool))
        rows = result.transpose(1, 2).contiguous()
        rows.add_(1)
        return rows, result * 2

    q = f32(3, 16, 2, 4).transpose(1, 2)
    assert after(function, q)[0]
    assert_as_eager(rewritten(function), function, [q])
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, [q])


@pytest.mark.parametrize("function", [as_bert, as_t5])
def test_nan_and_infinity_are_as_in_eager(function: Program) -> None:
    q = f32(*HEADS)
    q[0, 0, 3], q[1, 0, 2, 1], q[2, 1, 5, 0] = -float("inf"), float("nan"), float("inf")
    assert_same(rewritten(function)(q), function(q), exact=True)


@pytest.mark.parametrize("name", REMOVED)
def test_gradients_are_those_of_eager(name: str) -> None:
    inputs = [f32(*HEADS).requires_grad_()]
    torch._dynamo.reset()
    mine = gradients(compiled(REMOVED[name]), copies(inputs))
    assert_same(mine, gradients(REMOVED[name], copies(inputs)))


@pytest.mark.parametrize("function", [as_bert, as_former_bert])
def test_autocast_is_supported(function: Program) -> None:
    def cast(q: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return function(q)

    assert after(cast, f32(*HEADS))[0]
    assert_same(rewritten(cast)(f32(*HEADS)), cast(f32(*HEADS)), exact=True)


def test_on_a_gpu_the_number_of_keys_does_not_matter() -> None:
    def function(q: torch.Tensor) -> Any:
        batch, _, length, _ = q.shape
        queries = torch.arange(length, device=q.device).view(1, 1, length, 1)
        return merged(ATTENTION(q, q, q, (queries >= 0).expand(batch, -1, length, length)))

    torch._dynamo.reset()
    with FakeTensorMode(), torch.no_grad():
        changed, module = applied(redundant_masks, torch_graph(function, cuda(3, 2, 8, 4)))
    assert changed
    assert masks(module) == [None]


@pytest.mark.usefixtures("_any_length")
def test_empty_queries_and_batches_are_supported() -> None:
    for size in ((0, 2, 8, 4), (3, 2, 0, 4)):
        assert after(as_bert, f32(*size))[0]
        assert_same(rewritten(as_bert)(f32(*size)), as_bert(f32(*size)))
