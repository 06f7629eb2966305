"""Passes before autograd, on torch functions and methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from graphs import applied, ops, torch_graph
from programs import f32
from stages import compile_with
from torch.nn import functional as F

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.pipeline import PREGRAD
from tcdebug.compiler.pregrad.dropout_removal import dropout_removal
from tcdebug.compiler.pregrad.redundant_casts import redundant_casts


def test_dropout_that_is_off_is_removed() -> None:
    module = torch_graph(lambda x: F.dropout(x, 0.5, training=False) + 1, f32(4))
    changed, module = applied(dropout_removal, module)
    assert changed
    assert ops(module) == {"add": 1}


def test_dropout_that_is_on_stays() -> None:
    module = torch_graph(lambda x: F.dropout(x, 0.5, training=True) + 1, f32(4))
    changed, module = applied(dropout_removal, module)
    assert not changed
    assert ops(module) == {"dropout": 1, "add": 1}


def test_dropout_of_a_module_in_eval_mode_is_removed() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.ReLU()).eval()
    changed, module = applied(dropout_removal, torch_graph(model, f32(4)))
    assert changed
    assert "dropout" not in ops(module)


@pytest.mark.parametrize("method", ["float", "to"])
def test_a_cast_to_the_same_dtype_is_removed(method: str) -> None:
    function = (lambda x: x.float() + 1) if method == "float" else lambda x: x.to(x.dtype) + 1
    changed, module = applied(redundant_casts, torch_graph(function, f32(4)))
    assert changed
    assert ops(module) == {"add": 1}


def test_a_cast_to_another_dtype_stays() -> None:
    changed, module = applied(redundant_casts, torch_graph(lambda x: x.double() + 1, f32(4)))
    assert not changed
    assert ops(module)["double"] == 1


def test_a_cast_that_copies_stays() -> None:
    module = torch_graph(lambda x: x.to(torch.float32, copy=True) + 1, f32(4))
    changed, _ = applied(redundant_casts, module)
    assert not changed


@pytest.mark.parametrize(
    "fill",
    [
        lambda x, i, v: torch.index_fill(x, 0, i, v),
        lambda x, i, v: x.mT.index_fill(-1, i, value=v) * x.mT,
        lambda x, i, v: (x.half() * 2).index_fill(dim=1, index=i[:0], value=v.double()),
        lambda x, i, v: x.sin()[1:].index_fill_(1, i, v).exp(),
    ],
)
def test_the_gradient_of_a_filled_value_is_compiled(fill: Callable[..., torch.Tensor]) -> None:
    def function(x: torch.Tensor, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return fill(x, index, value)

    found = []
    index = torch.tensor([3, 0, 3, 1])
    compiled = torch.compile(function, backend="tcdebug", fullgraph=True)
    for call in (function, compiled):
        x, value = (t.requires_grad_() for t in (f32(5, 5), torch.tensor(7.0)))
        y = call(x, index, value)
        y.float().pow(2).sum().backward()
        found.append((y, x.grad, value.grad, torch.tensor(y.stride())))
    torch.testing.assert_close(found[1], found[0])


def test_a_value_without_a_gradient_is_filled_by_the_operator() -> None:
    module = torch_graph(
        lambda x, v: x.index_fill(0, torch.tensor([1]), v), f32(4).requires_grad_(), f32()
    )
    changed, _ = applied(PREGRAD["pregrad.masked_index_fill"], module)
    assert not changed


@pytest.mark.parametrize("unit", sorted(PREGRAD))
def test_a_pass_that_is_off_leaves_the_graph_alone(unit: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.dropout(x.float(), 0.5, training=False) + 1
        y = F.scaled_dot_product_attention(y, y, y, torch.zeros(128, 128))
        y = (y @ y.mT).softmax(-1) @ y
        y = y.index_fill(-1, torch.zeros(1, dtype=torch.long), x.sum())
        return F.interpolate(y, scale_factor=2), F.interpolate(
            y.detach(), (256, 8), mode="bilinear"
        )

    module = torch_graph(function, f32(1, 1, 128, 4).requires_grad_())
    before = str(module.graph)
    gate = Gate(Toggles.parse([unit]))
    compile_with(gate).stages("capture").run_passes("pregrad", module, {unit: PREGRAD[unit]})
    assert str(module.graph) == before
    gate = Gate()
    compile_with(gate).stages("capture").run_passes("pregrad", module, {unit: PREGRAD[unit]})
    assert str(module.graph) != before
