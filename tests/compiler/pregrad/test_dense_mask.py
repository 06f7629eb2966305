"""Attention on a GPU gets a mask of last stride 1; what it computes stays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from graphs import applied, aten_graph, ops, torch_graph
from judge import assert_as_eager, assert_same, compiled, copies, gradients
from programs import f32
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from traced_on_cuda import cuda

from tcdebug.compiler.passes.common_subexpressions import common_subexpressions
from tcdebug.compiler.pregrad.dense_mask import dense_mask

ATTENTION = F.scaled_dot_product_attention
Attention = Callable[..., Any]


@pytest.fixture
def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU is one of the devices whose masks are copied."""
    torch._dynamo.reset()
    module = sys.modules[dense_mask.__module__]
    monkeypatch.setattr(module, "DEVICES", frozenset({"cpu", "cuda"}))
    yield
    torch._dynamo.reset()


def captured_on_a_gpu(function: Attention, *masks: tuple[int, ...]) -> torch.fx.GraphModule:
    """The graph of a function of queries and masks, as Dynamo captures it where there is a GPU."""
    torch._dynamo.reset()
    with FakeTensorMode(), torch.no_grad():
        q = cuda(16, 12, 64, 32, dtype=torch.bfloat16)
        return torch_graph(function, q, *(cuda(*size, dtype=torch.bool) for size in masks))


def rewritten(function: Attention, **options: Any) -> Attention:
    """The function with nothing done to it but the pass."""

    def backend(module: torch.fx.GraphModule, _: Any) -> Attention:
        return applied(dense_mask, module)[1].forward

    return torch.compile(function, backend=backend, **options)


def masks(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """The example of each attention's mask."""
    nodes = [n for n in module.graph.nodes if n.target is ATTENTION]
    found = [n.args[3] if len(n.args) > 3 else n.kwargs["attn_mask"] for n in nodes]
    return [n.meta["example_value"] for n in found]


def as_in_bert(q: torch.Tensor, seen: torch.Tensor) -> Any:
    mask = seen.expand(16, -1, 64, 64)
    return ATTENTION(q, q, q, attn_mask=mask) + ATTENTION(q, q, q, mask)


def test_a_mask_that_is_expanded_over_keys_is_copied_but_not_over_its_batch() -> None:
    module = captured_on_a_gpu(as_in_bert, (1, 1, 64, 1))
    assert [m.stride()[2:] for m in masks(module)] == [(1, 0), (1, 0)]
    changed, module = applied(dense_mask, module)
    assert changed
    for mask in masks(module):
        assert (mask.shape, mask.dtype) == ((16, 1, 64, 64), torch.bool)
        assert mask.stride() == (0, 4096, 64, 1)
        assert mask.device.type == "cuda"
    assert ops(module) == {
        **{"expand": 1, "narrow": 2, "clone": 2, "expand_as": 2},
        **{"scaled_dot_product_attention": 2, "add": 1},
    }


KEPT: dict[str, Attention] = {
    "over queries": lambda q, m: ATTENTION(q, q, q, m.view(16, 1, 1, 64).expand(16, -1, 64, 64)),
    "of one key": lambda q, m: ATTENTION(q, q, q, attn_mask=m.view(16, 1, 64, 1)),
    "none": lambda q, m: ATTENTION(q, q, q, attn_mask=None, is_causal=True),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_mask_that_kernels_take_stays(name: str) -> None:
    changed, _ = applied(dense_mask, captured_on_a_gpu(KEPT[name], (16, 64)))
    assert not changed


def test_on_a_cpu_a_mask_stays() -> None:
    torch._dynamo.reset()
    q = f32(2, 2, 8, 4)
    module = torch_graph(lambda q: ATTENTION(q, q, q, (q[:, :1, :, :1] > 0).expand(2, 1, 8, 8)), q)
    changed, module = applied(dense_mask, module)
    assert not changed
    assert masks(module)[0].stride(-1) == 0


def twice(mask_of: Callable[[torch.Tensor], torch.Tensor]) -> Attention:
    """A mask that is read by two attentions, of which one reads the other."""

    def function(q: torch.Tensor, given: torch.Tensor) -> Any:
        mask = mask_of(given)
        first = ATTENTION(q, q, q, attn_mask=mask)
        return ATTENTION(first, q, q, mask)

    return function


def written_between(q: torch.Tensor, given: torch.Tensor) -> Any:
    mask = given.expand(3, 1, 8, 8)
    first = ATTENTION(q, q, q, attn_mask=mask)
    given[:, :, 2:4].logical_not_()
    return first, ATTENTION(q, q, q, attn_mask=mask)


def within_vmap(q: torch.Tensor, given: torch.Tensor) -> Any:
    def one(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ATTENTION(x, x, x, attn_mask=mask.expand(1, 8, 8))

    return torch.vmap(one)(q, given)


PROGRAMS: dict[str, tuple[Attention, tuple[int, ...]]] = {
    "four dimensions": (twice(lambda m: m.expand(3, -1, 8, 8)), (1, 1, 8, 1)),
    "batches of their own": (twice(lambda m: m.expand(3, 2, 8, 8)), (3, 1, 8, 1)),
    "three dimensions": (twice(lambda m: m.expand(2, 8, 8)), (2, 8, 1)),
    "two dimensions": (twice(torch.Tensor.t), (8, 8)),
    "one truth a batch": (twice(lambda m: m.expand(3, 1, 8, 8)), (3, 1, 1, 1)),
    "written between": (written_between, (3, 1, 8, 1)),
    "vmap": (within_vmap, (3, 1, 8, 1)),
}


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_eager(name: str, dynamic: bool) -> None:
    function, shape = PROGRAMS[name]
    given = f32(*shape) > -1
    given.view(-1)[:: max(given.numel() - 1, 1)] = True
    inputs = (f32(3, 2, 8, 4), given)
    assert_as_eager(rewritten(function, dynamic=dynamic), function, inputs, exact=True)


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_one_compile_serves_many_batches() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def function(q: torch.Tensor, given: torch.Tensor) -> Any:
        mask = given.expand(q.shape[0], -1, q.shape[2], q.shape[2])
        return ATTENTION(q, q, q, attn_mask=mask)

    def backend(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        changed, module = applied(dense_mask, module)
        assert changed
        graphs.append(module)
        return module.forward

    once = torch.compile(function, backend=backend, dynamic=True)
    for batch, length in ((3, 8), (5, 6), (2, 9)):
        inputs = f32(batch, 2, length, 4), f32(1, 1, length, 1) > 0
        assert_same(once(*inputs), function(*inputs))
    assert len(graphs) == 1
    assert masks(graphs[0])[0].stride(0) == 0


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_nothing_of_nothing_is_attended_to() -> None:
    function = twice(lambda m: m.expand(0, 1, 8, 8))
    module = torch_graph(function, f32(0, 2, 8, 4), f32(1, 1, 8, 1) > 0)
    _, module = applied(dense_mask, module)
    assert module(f32(1, 1, 8, 1) > 0, f32(0, 2, 8, 4))[0].shape == (0, 2, 8, 4)


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_one_copy_is_left_for_all_attentions_of_a_mask() -> None:
    inputs = f32(3, 2, 8, 4), f32(1, 1, 8, 1) > 0
    captured = torch_graph(twice(lambda m: m.expand(3, -1, 8, 8)), *inputs)
    _, module = applied(dense_mask, captured)
    assert ops(module)["clone"] == 2
    by_name = {"l_q_": inputs[0], "l_given_": inputs[1]}
    flat = [by_name[n.name] for n in module.graph.nodes if n.op == "placeholder"]
    _, traced = applied(common_subexpressions, aten_graph(module.forward, *flat))
    assert ops(traced)["clone.default"] == 1


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_gradients_of_a_mask_are_those_of_eager() -> None:
    program = twice(lambda m: m.expand(3, -1, 8, 8))
    inputs = [t.requires_grad_() for t in (f32(3, 2, 8, 4), f32(1, 1, 8, 1))]
    mine = gradients(compiled(program), copies(inputs))
    assert_same(mine, gradients(program, copies(inputs)))


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_each_element_of_an_expanded_input_gets_its_own_gradient() -> None:
    """A leaf over whose batch one memory is spread: eager's gradient differs along the batch."""
    q, program = f32(3, 2, 8, 4), twice(lambda m: m)
    got = []
    for function in (compiled(program), program):
        leaf = f32(1, 1, 8, 1).expand(3, 1, 8, 8).requires_grad_()
        got += torch.autograd.grad(function(q, leaf).square().sum(), leaf)
    assert_same(*got)
    assert not torch.equal(got[1][0], got[1][1])
