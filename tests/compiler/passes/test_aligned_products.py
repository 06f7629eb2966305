"""Half-precision products with odd sizes on a GPU. The graphs hold fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from graphs import applied, ops
from stages import compile_with
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.operators.product_in_pieces import product_in_pieces, rows_of_a_piece
from tcdebug.compiler.passes.aligned_products import aligned_products

aten = torch.ops.aten
HALF = torch.bfloat16


def graph(function: Callable[..., Any], *sizes: tuple[int, ...], device: str) -> fx.GraphModule:
    with FakeTensorMode():
        return make_fx(function)(*(torch.empty(s, dtype=HALF, device=device) for s in sizes))


def head(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return aten.mm.default(x, aten.t.default(weight)).sin()


def backward(
    logits: torch.Tensor, weight: torch.Tensor, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    gradient = aten.sin.default(logits)
    return aten.mm.default(gradient, weight), aten.mm.default(aten.t.default(gradient), x)


def of_saved(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product of a backward whose forward saved the transposed weight."""
    return aten.mm.default(aten.sin.default(gradient), aten.t.default(weight))


def both_odd(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return aten.mm.default(aten.t.default(x), weight)


def with_whole_bias(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return aten.addmm.default(bias, x, weight).sin()


def with_bias(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return aten.addmm.default(bias, x, aten.t.default(weight))


SIZES: dict[Callable[..., Any], tuple[tuple[int, ...], ...]] = {
    head: ((2048, 768), (5001, 768)),
    backward: ((2048, 5001), (5001, 768), (2048, 768)),
    with_bias: ((5001,), (2048, 768), (5001, 768)),
    both_odd: ((768, 2001), (768, 5001)),
    with_whole_bias: ((768, 5001), (768, 2001), (2001, 5001)),
}


def layouts(changed: fx.GraphModule) -> list[tuple[tuple[int, ...], ...]]:
    """The strides of the operands and the result of each product."""
    found = changed.graph.find_nodes(op="call_function", target=aten.mm.default)
    return [tuple(n.meta["val"].stride() for n in (*p.args, p)) for p in found]


def test_an_output_layer_of_odd_size_gets_padding_columns() -> None:
    changed = applied(aligned_products, graph(head, *SIZES[head], device="cuda"))[1]
    assert layouts(changed) == [((768, 1), (1, 768), (5008, 1))]
    assert ops(changed)["slice.Tensor"] == 1


def test_a_gradient_of_odd_size_is_padded_once_for_both_products() -> None:
    """One product sums over the odd size, so the weight is padded too. In the other it is rows."""
    changed = applied(aligned_products, graph(backward, *SIZES[backward], device="cuda"))[1]
    assert layouts(changed) == [((5008, 1), (768, 1), (768, 1)), ((1, 5008), (768, 1), (768, 1))]
    products = changed.graph.find_nodes(op="call_function", target=aten.mm.default)
    assert [p.meta["val"].shape for p in products] == [(2048, 768), (5008, 768)]
    assert ops(changed)["constant_pad_nd.default"] == 2


def test_a_transposed_weight_that_forward_saved_is_padded_too() -> None:
    with FakeTensorMode():
        weight = torch.empty(5001, 768, dtype=HALF, device="cuda").t()
        gradient = torch.empty(2048, 5001, dtype=HALF, device="cuda")
        traced = make_fx(of_saved)(gradient, weight)
    changed = applied(aligned_products, traced)[1]
    assert layouts(changed) == [((5008, 1), (768, 1), (768, 1))]


def test_a_result_that_leaves_the_graph_is_copied_without_padding() -> None:
    changed = applied(aligned_products, graph(with_bias, *SIZES[with_bias], device="cuda"))[1]
    (product,) = changed.graph.find_nodes(op="call_function", target=aten.addmm.default)
    (result,) = changed.graph.output_node().all_input_nodes
    assert product.meta["val"].stride() == (5008, 1)
    assert result.target is aten.clone.default
    assert result.meta["val"].stride() == (5001, 1)


def test_a_large_result_that_leaves_the_graph_is_computed_in_pieces() -> None:
    sizes = ((30_001,), (8192, 768), (30_001, 768))
    changed = applied(aligned_products, graph(with_bias, *sizes, device="cuda"))[1]
    (result,) = changed.graph.output_node().all_input_nodes
    assert result.target is product_in_pieces()
    assert result.meta["val"].stride() == (30_001, 1)
    assert [n.meta["val"].shape for n in result.all_input_nodes] == [
        (8192, 768), (768, 30_008), (30_008,),
    ]  # fmt: skip
    assert rows_of_a_piece(result.args[1].meta["val"]) == 1024


@pytest.mark.parametrize("biased", [False, True])
def test_pieces_equal_the_whole_product(monkeypatch: pytest.MonkeyPatch, *, biased: bool) -> None:
    """The rows are not a multiple of a piece, and the left operand has additional rows."""
    monkeypatch.setattr(import_module("tcdebug.compiler.operators.product_in_pieces"), "PIECE", 1)
    left, right, bias = torch.randn(304, 8), torch.randn(8, 16), torch.randn(16) * biased
    given = (left, right, bias if biased else None, 300, 13)
    made = product_in_pieces()(*given)
    torch.testing.assert_close(made, (bias + left @ right)[:300, :13])
    torch.library.opcheck(product_in_pieces(), given)


@pytest.mark.parametrize("function", SIZES)
def test_values_are_kept(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("tcdebug.compiler.passes.aligned_products")
    monkeypatch.setattr(module, "on_gpu", lambda node: True)
    monkeypatch.setattr(module, "FEWEST_MULTIPLICATIONS", 1)
    monkeypatch.setattr(module, "FEWEST_USES", 1)
    sizes = [tuple(n if n == 768 else n // 100 + 1 for n in size) for size in SIZES[function]]
    inputs = [torch.randn(size).to(HALF) for size in sizes]
    before = make_fx(function, tracing_mode="fake")(*inputs)
    changed, after = applied(aligned_products, make_fx(function, tracing_mode="fake")(*inputs))
    assert changed
    torch.testing.assert_close(after(*inputs), before(*inputs))


def test_products_that_are_small_on_a_cpu_or_switched_off_are_not_padded() -> None:
    assert not applied(aligned_products, graph(head, *SIZES[head], device="cpu"))[0]
    assert not applied(aligned_products, graph(head, (8, 768), (5001, 768), device="cuda"))[0]
    unit, left = "passes.aligned_products", graph(head, *SIZES[head], device="cuda")
    stages = compile_with(Gate(Toggles.parse([unit]))).stages("inference")
    stages.run_passes("passes", left, {unit: aligned_products})
    assert ops(left) == {"t.default": 1, "mm.default": 1, "sin.default": 1}
