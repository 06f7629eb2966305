"""Keeps an interpolation with a gradient one ATen call.

Decomposed, its backward is slow, because it adds single elements. Matches `interpolate` of a tensor
with four dimensions and known sizes on a CPU, in the modes of `OPERATORS`. Guarantees eager's
results and gradients, since ATen computes both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.pregrad.interpolations import InterpolateCall, replace_interpolations

aten = torch.ops.aten

OPERATORS: dict[tuple[str, int], tuple[Callable[..., Any], Callable[..., Any], bool]] = {
    ("nearest", 4): (
        aten.upsample_nearest2d.default,
        aten.upsample_nearest2d_backward.default,
        False,
    ),
    ("bilinear", 4): (
        aten.upsample_bilinear2d.default,
        aten.upsample_bilinear2d_backward.default,
        True,
    ),
    ("bicubic", 4): (
        aten.upsample_bicubic2d.default,
        aten.upsample_bicubic2d_backward.default,
        True,
    ),
}
"""(mode, dimensions of the input) -> (forward, backward, whether it takes align_corners)."""


class Interpolation(torch.autograd.Function):
    """An interpolation whose forward and backward are one ATen call each."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, mode: str, size: list[int], options: list[Any]
    ) -> torch.Tensor:
        """Interpolate x to a size. `options` are the operator's arguments after the size."""
        ctx.call = (mode, size, list(x.shape), options)
        with seams.below_autograd():
            result: torch.Tensor = OPERATORS[mode, x.dim()][0](x, size, *options)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return the gradient of the input; the other arguments have none."""
        mode, size, shape, options = ctx.call
        operator = OPERATORS[mode, len(shape)][1]
        with seams.below_autograd():
            return operator(gradients[0], size, shape, *options), None, None, None


def interpolated(x: torch.Tensor, mode: str, size: list[int], options: list[Any]) -> torch.Tensor:
    """Call `Interpolation`. A plain function, because FX can print it as Python."""
    apply: Callable[..., torch.Tensor] = Interpolation.apply
    return apply(x, mode, size, options)


def whole_interpolation(graph: fx.Graph) -> bool:
    """Keep an interpolation with a gradient one ATen call: decomposed, its backward is slow."""
    return replace_interpolations(graph, interpolated, _arguments)


def _arguments(call: InterpolateCall) -> tuple[Any, ...] | None:
    """Return the arguments of `interpolated`; None if the interpolation is not supported."""
    kind = (call.mode, call.x.dim())
    if not call.x.requires_grad or kind not in OPERATORS:
        return None
    aligned = [call.aligned] if OPERATORS[kind][2] else []
    return (call.source, call.mode, call.size, [*aligned, *call.scales])
