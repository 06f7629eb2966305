"""Passes before autograd, on torch functions and methods."""

from __future__ import annotations

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


@pytest.mark.parametrize("unit", sorted(PREGRAD))
def test_a_pass_that_is_off_leaves_the_graph_alone(unit: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.dropout(x.float(), 0.5, training=False) + 1
        y = F.scaled_dot_product_attention(y, y, y, torch.zeros(128, 128))
        y = (y @ y.mT).softmax(-1) @ y
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
