"""An interpolation with a gradient is one call in forward and one in backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import applied, ops, torch_graph
from judge import assert_same, compiled, gradients
from programs import f32
from torch.nn import functional as F

from tcdebug.compiler.pregrad.whole_interpolation import whole_interpolation

WHOLE: dict[str, dict[str, Any]] = {
    "nearest": {"scale_factor": 2},
    "nearest_uneven": {"scale_factor": 1.7},
    "bilinear": {"scale_factor": 2, "mode": "bilinear"},
    "bilinear_aligned": {"size": (7, 9), "mode": "bilinear", "align_corners": True},
    "bicubic": {"scale_factor": (1.5, 2.3), "mode": "bicubic"},
}


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_values_strides_and_gradients_are_those_of_eager(
    name: str, memory_format: torch.memory_format
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x.sin(), **WHOLE[name]) * 2

    x = f32(2, 3, 5, 6).contiguous(memory_format=memory_format)
    torch._dynamo.reset()
    mine = gradients(compiled(function), [x.clone().requires_grad_()])
    assert_same(mine, gradients(function, [x.clone().requires_grad_()]))


@pytest.mark.parametrize("name", WHOLE)
def test_an_interpolation_becomes_one_call(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **WHOLE[name])

    module = torch_graph(function, f32(2, 3, 5, 6).requires_grad_())
    changed, module = applied(whole_interpolation, module)
    assert changed
    assert ops(module) == {"interpolated": 1}


def test_an_interpolation_without_a_gradient_or_of_another_kind_stays() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)

    for function, x in (
        (lambda x: F.interpolate(x, scale_factor=2), f32(2, 3, 5, 6)),
        (other, f32(2, 3, 6, 6).requires_grad_()),
        (lambda x: F.interpolate(x, scale_factor=2), f32(2, 3, 5).requires_grad_()),
    ):
        torch._dynamo.reset()
        changed, _ = applied(whole_interpolation, torch_graph(function, x))
        assert not changed
