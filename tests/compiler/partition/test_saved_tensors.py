"""The strides of tensors saved for backward, and the effects of hooks on saved tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from graphs import aten_graph
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge import assert_same, gradients
from programs import f32
from torch import fx

from tcdebug.compiler import pipeline, seams
from tcdebug.compiler.backend import backend, get_backend
from tcdebug.compiler.backend import compile as compile_graph
from tcdebug.compiler.partition.saved_tensors import (
    VISIBLE_RESULTS,
    give_elements_memory,
    take_strides,
)
from tcdebug.compiler.passes.replacement import strided_as_eager
from tcdebug.compiler.passes.strides import restride
from tcdebug.compiler.registry import REGISTRY

aten = torch.ops.aten
NO_MIN_CUT = {"off": ["partition.min_cut"]}


def with_gaps(graph: fx.Graph) -> bool:
    """A pass that pads products whose strides nobody sees with three elements per row."""
    kept = strided_as_eager(graph)
    products = [n for n in graph.nodes if n.target is aten.mm.default and n not in kept]
    for node in products:
        columns = node.meta["val"].shape[1]
        with graph.inserting_after(node):
            padded = graph.call_function(aten.constant_pad_nd.default, (node, [0, 3]))
        with graph.inserting_after(padded):
            view = graph.call_function(aten.slice.Tensor, (padded, 1, 0, columns))
        node.replace_all_uses_with(view, lambda user, own=padded: user is not own)
        padded.meta["val"] = aten.constant_pad_nd.default(node.meta["val"], [0, 3])
        view.meta["val"] = aten.slice.Tensor(padded.meta["val"], 1, 0, columns)
        restride(graph, view, view.meta["val"], results=True)
    return bool(products)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...] | None]]:
    """The strides of each forward graph if the pass above runs first."""
    found: list[list[tuple[int, ...] | None]] = []
    report = seams.report_strides

    def spy(strides: Sequence[tuple[int, ...] | None]) -> None:
        found.append([s for s in strides if s is not None])
        report(strides)

    monkeypatch.setattr(seams, "report_strides", spy)
    monkeypatch.setattr(pipeline, "ATEN", {"passes.with_gaps": with_gaps, **pipeline.ATEN})
    return found


def saved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = x @ w
    return product.sin() * product.exp()


def returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    product = x @ w
    return product.sin() * product.exp(), product


def returned_in_part(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    product = x @ w
    return product.sin() * product.exp(), product.t()[1:]


def split(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Slices are saved."""
    first, second = (x @ w).split([2, 3], 1)
    return (first.sin() * first.exp()).sum(1) + (second.sin() * second.exp()).sum(1)


def flat(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Padded rows cannot be viewed as flat."""
    product = (x @ w).view(-1)
    return product.sin() * product.exp()


def as_laid_out(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = x @ w
    corner = product.as_strided((2, 2), (7, 1), 3)
    return product.sin().sum() + (corner.sin() * corner.exp()).sum()


class ReturnsWhatItSaved(torch.autograd.Function):
    """A saved tensor is itself a gradient of the second derivative."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(factor)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradient: torch.Tensor) -> Any:
        (factor,) = ctx.saved_tensors
        return factor, torch.zeros_like(factor)


def saved_is_a_gradient(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ReturnsWhatItSaved.apply(x[:, :5], x @ w)


def inputs() -> list[torch.Tensor]:
    return [f32(6, 8).requires_grad_(), f32(8, 5).requires_grad_()]


def assert_gradients_are_eagers(
    function: Callable[..., Any], options: Mapping[str, Any] | None = None, **others: Any
) -> None:
    compiled = torch.compile(function, backend=partial(backend, options=options), **others)
    mine, theirs = inputs(), inputs()
    for _ in range(2):
        assert_same(gradients(compiled, mine), gradients(function, theirs))


CASES: dict[Callable[..., Any], list[tuple[int, ...]]] = {
    saved: [(8, 1)],
    returned: [],
    returned_in_part: [],
    split: [(8, 1), (8, 1)],
    flat: [],
    as_laid_out: [],
    saved_is_a_gradient: [(8, 1)],
}
"""With torch's default partition, which saves every tensor that backward reads."""


@pytest.mark.parametrize("function", CASES)
def test_only_tensors_that_are_only_saved_change_strides(
    function: Callable[..., Any], reported: list[Any]
) -> None:
    """Gradients and results are those of eager, including their strides."""
    assert_gradients_are_eagers(function, NO_MIN_CUT)
    assert [strides for forward in reported for strides in forward] == CASES[function]


@pytest.mark.parametrize(
    "options",
    [{}, {"background": True}, {"off": ["lower"]}, {"off": ["lower.aten.slice.Tensor"]}],
    ids=str,
)
def test_new_strides_work_with_min_cut_and_with_operators_left_to_aten(
    options: dict[str, Any], reported: list[Any]
) -> None:
    assert_gradients_are_eagers(saved, options)
    assert reported == [[(8, 1)]]


def test_new_strides_work_after_a_fallback(
    reported: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(graph: fx.Graph) -> bool:
        raise ValueError("planted")

    monkeypatch.setitem(REGISTRY.aten_passes, "passes.failing", failing)
    assert_gradients_are_eagers(saved, {"on_error": "fallback"})
    assert reported == [[(8, 1)]]


def test_new_strides_work_in_compiled_autograd(reported: list[Any]) -> None:
    compiled = torch.compile(saved, backend=backend)
    mine, theirs = inputs(), inputs()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend)):
        actual = gradients(compiled, mine)
    assert_same(actual, gradients(saved, theirs))
    assert reported[0] == [(8, 1)]


def test_new_strides_work_with_symbolic_sizes(reported: list[Any]) -> None:
    compiled = torch.compile(saved, backend=backend)
    for rows in (3, 4, 5):
        mine, theirs = inputs(), inputs()
        mine[0], theirs[0] = (f32(rows, 8).requires_grad_() for _ in range(2))
        assert_same(gradients(compiled, mine), gradients(saved, theirs))
    assert reported == [[(8, 1)], [(8, 1)]]


def test_no_strides_are_reported_if_others_compile_backward_or_partition(
    reported: list[Any],
) -> None:
    def vendors(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        return module.forward

    def cut(*args: Any, **kwargs: Any) -> Any:
        return seams.default_partition(*args, **kwargs)

    for parts in ({"bw_compiler": vendors}, {"partition_fn": cut}):
        compiled = torch.compile(saved, backend=get_backend(**parts))
        assert_same(gradients(compiled, inputs()), gradients(saved, inputs()))
        torch._dynamo.reset()
    assert reported == []


def test_no_strides_are_reported_without_dynamo(reported: list[Any]) -> None:
    module = fx.symbolic_trace(lambda x, w: (saved(x, w),))
    compiled = compile_graph(module, inputs())
    assert_same(gradients(compiled, inputs()), gradients(saved, inputs()))
    assert reported == []


def transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    product = (x @ w).sin().t()
    return product.exp() * product


def expanded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A tensor with stride 0 is saved."""
    row = (x @ w).sum(0, keepdim=True).expand(6, 5)
    return row.sin() * row.exp()


@pytest.mark.parametrize("function", [saved, transposed, expanded])
def test_a_tensor_that_a_hook_made_contiguous_gets_its_strides_back(
    function: Callable[..., Any], reported: list[Any]
) -> None:
    compiled = torch.compile(function, backend=partial(backend, options=NO_MIN_CUT))
    moved: list[bool] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        moved.append(not value.is_contiguous())
        return value.contiguous()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        actual = gradients(compiled, mine := inputs())
    assert any(moved)
    assert_same(actual, gradients(function, inputs()))
    assert [leaf.grad is not None for leaf in mine] == [True, True]


# -- graphs ---------------------------------------------------------------------------------


def gapped(value: torch.Tensor) -> torch.Tensor:
    """A fake tensor with three padding elements per row."""
    return aten.slice.Tensor(aten.constant_pad_nd.default(value, [0, 3]), 1, 0, value.shape[1])


def readers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    flat = x.view(-1)
    written = x.as_strided_scatter(x.new_ones(2), (2,), (1,), 7)
    part = x.as_strided((2,), (1,), 7).tan()
    return x.sin(), x.view(2, 3, 5).cos(), flat.exp(), x.t(), part, written


def test_readers_that_need_the_old_strides_read_a_copy() -> None:
    """An impossible view, a view that addresses memory, and a result of backward."""
    module = aten_graph(readers, torch.ones(6, 5))
    (x,) = module.graph.find_nodes(op="placeholder")
    take_strides(module, [gapped(x.meta["val"])])
    module.graph.lint()
    module.recompile()
    names = {n.name: n for n in module.graph.nodes}
    assert names["sin"].args == (x,)
    assert names["view_1"].args[0] is x
    assert names["view_1"].meta["val"].stride() == (24, 8, 1)
    for reader in ("view", "as_strided", "as_strided_scatter"):
        assert names[reader].args[0].target is aten.clone.default
    value = torch.randn(6, 8)[:, :5]
    results = module(value)
    assert_same(results, readers(value.contiguous()))


VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.view(-1),
    lambda x: x.view(2, -1) if x.numel() % 2 == 0 else x,
    lambda x: x.view(3, -1, 5) if x.numel() % 15 == 0 else x,
    lambda x: x.transpose(0, -1),
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x.unsqueeze(1).expand(-1, 2, *x.shape[1:]),
    lambda x: x.split(2, -1)[0] if x.size(-1) else x,  # torch 2.11 cannot trace others
    lambda x: x.select(-1, 0).unsqueeze(0),
]


@given(st.lists(st.sampled_from(VIEWS), max_size=4), st.booleans())
@example([VIEWS[8], VIEWS[4], VIEWS[0], VIEWS[7]], False)  # the third view is empty
@settings(max_examples=60, deadline=None)
def test_views_of_views_keep_their_values(
    views: list[Callable[[torch.Tensor], torch.Tensor]], returned_too: bool
) -> None:
    """The fake values of views are updated; an impossible view reads a copy."""

    possible, dense = [], torch.ones(6, 5)
    for view in views:
        with contextlib.suppress(RuntimeError, IndexError):
            dense = view(dense)
            possible.append(view)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = [x]
        for view in possible:
            seen.append(view(seen[-1]))
        computed = tuple(v.exp() for v in seen)
        return (*computed, seen[-1]) if returned_too else computed

    module = aten_graph(function, torch.ones(6, 5))
    (x,) = module.graph.find_nodes(op="placeholder")
    restride(module.graph, x, gapped(x.meta["val"]), results=True)
    module.graph.lint()
    module.recompile()
    value = torch.randn(6, 8)[:, :5]
    assert_same(module(value), function(value.contiguous()), strides=False)

    class Compared(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            made = super().run_node(node)
            if isinstance(made, torch.Tensor) and node.target is not aten.exp.default:
                steps = zip(made.size(), made.stride(), node.meta["val"].stride(), strict=True)
                assert all(real == fake for size, real, fake in steps if size > 1), node
            return made

    Compared(module).run(value)


def test_an_operator_outside_of_aten_reads_a_copy() -> None:
    with torch.library._scoped_library("saved_test", "FRAGMENT") as library:
        library.define("takes(Tensor x) -> Tensor")
        library.impl("takes", torch.clone, "CompositeExplicitAutograd")
        takes = torch.ops.saved_test.takes.default
        module = aten_graph(lambda x: takes(x).sin(), torch.ones(6, 5))
        (x,) = module.graph.find_nodes(op="placeholder")
        restride(module.graph, x, gapped(x.meta["val"]), results=True)
        (call,) = module.graph.find_nodes(op="call_function", target=takes)
        assert call.args[0].target is aten.clone.default
        assert call.args[0].meta["val"].stride() == (5, 1)


def test_strides_are_kept_if_backward_addresses_memory() -> None:
    marked: list[Any] = []

    def compiler(module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        marked.append(module.graph.output_node().meta.get(VISIBLE_RESULTS))
        return module.forward

    for function in (returned, as_laid_out):
        parts = {"fw_compiler": compiler, "bw_compiler": compiler}
        torch.compile(function, backend=get_backend(**parts))(*inputs())
    assert marked == [2, None]


UPDATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice_scatter": lambda x: torch.slice_scatter(x, x.narrow(0, 0, 1) + 1, 0, 0, 1),
    "select_scatter": lambda x: torch.select_scatter(x, x.select(0, 0) + 1, 0, 0),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x.diagonal(0, 0, 2) + 1, 0, 0, 2),
    "scatter": lambda x: x.scatter(0, torch.ones_like(x[:1], dtype=torch.int64), x[:1] * 2),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1]), x[:1] * 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", UPDATED)
def test_the_saved_update_of_an_expanded_tensor_is_read_where_it_is(
    name: str, dynamic: bool
) -> None:
    """torch 2.11 traces some of them with the strides of the expanded tensor."""

    def function(x: torch.Tensor) -> torch.Tensor:
        updated = UPDATED[name](x)
        return updated.sin() * updated.exp()

    def expanded() -> torch.Tensor:
        return f32(1, 2, 17).expand(8, 2, 17).requires_grad_()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="tcdebug", dynamic=dynamic)
    assert_same(gradients(compiled, [expanded()]), gradients(function, [expanded()]))


def test_elements_that_a_fake_kernel_lays_over_each_other_have_memory_of_their_own() -> None:
    module = aten_graph(lambda x: (x + 1).sin().view(-1), f32(8, 2, 17))
    added = next(n for n in module.graph.nodes if n.target is aten.add.Tensor)
    added.meta["val"] = added.meta["val"][:1].expand(8, 2, 17)
    give_elements_memory(module)
    assert added.meta["val"].stride() == (34, 17, 1)


def test_an_expanded_view_keeps_its_strides() -> None:
    module = aten_graph(lambda x: x.expand(8, 2, 17) + 1, f32(1, 2, 17))
    view = next(n for n in module.graph.nodes if n.target is aten.expand.default)
    give_elements_memory(module)
    assert view.meta["val"].stride() == (0, 17, 1)
