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
from tcdebug.compiler.pregrad.node_values import example_tensor

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
    changed = False
    for node in list(graph.nodes):
        if node.target is not torch.nn.functional.interpolate:
            continue
        arguments = _arguments(node)
        if arguments is None:
            continue
        with graph.inserting_before(node):
            whole = graph.call_function(interpolated, arguments)
        whole.meta = dict(node.meta)
        node.replace_all_uses_with(whole)
        graph.erase_node(node)
        changed = True
    return changed


def _arguments(node: fx.Node) -> tuple[Any, ...] | None:
    """Return the arguments of `Interpolation`; None if the interpolation is not supported."""
    names = ("input", "size", "scale_factor", "mode", "align_corners")
    given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    extra = set(given) - set(names)
    if len(node.args) > len(names) or any(given[name] for name in extra):
        return None
    source, mode = given.get("input"), given.get("mode", "nearest")
    x, y = (example_tensor(n) for n in (source, node))
    if x is None or y is None or not x.requires_grad or (mode, x.dim()) not in OPERATORS:
        return None
    sizes = (*x.shape, *y.shape)
    if x.device.type != "cpu" or not all(isinstance(n, int) for n in sizes):
        return None
    aligned = [bool(given.get("align_corners"))] if OPERATORS[mode, x.dim()][2] else []
    factor = given.get("scale_factor")
    factors = list(factor) if isinstance(factor, tuple | list) else [factor] * 2
    if not all(f is None or isinstance(f, int | float) for f in factors):
        return None
    scales = [None if f is None else float(f) for f in factors]
    return (source, mode, list(y.shape[2:]), [*aligned, *scales])
