"""Convolutions of float16 on a CPU."""

from __future__ import annotations

import pytest
import torch
from judge import compiled, copies, gradients
from programs import f32
from stages import capture
from torch.nn import functional as F

from tcdebug.compiler.decompose import float16_convolution


def convolved(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, w, b, padding=1).relu()


def given(dtype: torch.dtype) -> list[torch.Tensor]:
    return [t.to(dtype).requires_grad_() for t in (f32(2, 3, 7, 6), f32(4, 3, 3, 3), f32(4))]


def dtypes(dtype: torch.dtype) -> set[torch.dtype]:
    """The dtypes in which the convolutions of a training step are computed."""
    operators = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
    return {
        node.args[0].meta["val"].dtype
        for graph in capture(convolved, *given(dtype)).aten
        for node in graph.graph.nodes
        if node.target in operators
    }


@pytest.mark.parametrize("slow", [True, False])
def test_only_slow_convolutions_of_float16_are_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    def is_slow(x: torch.Tensor) -> bool:
        return slow and x.dtype == torch.float16

    monkeypatch.setattr(float16_convolution, "_is_slow", is_slow)
    assert dtypes(torch.float16) == {torch.float32 if slow else torch.float16}
    assert dtypes(torch.bfloat16) == {torch.bfloat16}


def test_convolutions_of_float16_and_their_gradients_are_as_accurate_as_in_eager() -> None:
    inputs = given(torch.float16)
    exact = gradients(convolved, [x.detach().double().requires_grad_() for x in inputs])
    eager, ours = (gradients(f, copies(inputs)) for f in (convolved, compiled(convolved)))
    for right, wanted, found in zip(exact, eager, ours, strict=True):
        allowed = (wanted.double() - right).norm() + 1e-3 * right.norm()
        assert (found.double() - right).norm() <= allowed
        assert (found.dtype, found.stride()) == (wanted.dtype, wanted.stride())
