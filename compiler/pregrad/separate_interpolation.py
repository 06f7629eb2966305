"""Interpolates along one dimension after the other, from the last one to the first.

Each element of a row that is interpolated is then read by several rows of the result, instead of
being computed for each of them: torch's decomposition reads 4 elements per point in bilinear mode
and 16 in bicubic, all of them through an index that changes from point to point. Here these are 2
and 4, and the other dimensions read rows whose neighbours are neighbours in memory.

Matches `interpolate` of a contiguous float tensor of known sizes on a CPU that needs no gradient,
in the modes of `TAPS`. Guarantees the bits of torch's decomposition: each point has the same
operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.pregrad.interpolations import InterpolateCall, replace_interpolations

Tensor = torch.Tensor
LONGEST = {"bilinear": 1.0, "trilinear": 1.0, "bicubic": 2.5}
"""How much longer a dimension may be than that of the result: all of its rows are interpolated."""
SHARPNESS = -0.75
"""The parameter of the cubic kernel (Keys, 1981) that eager uses."""


@dataclass(frozen=True)
class Resized:
    """A dimension of an interpolation: its place, and how points map to those of the source."""

    dim: int
    points: int
    scale: float
    aligned: bool

    def sources(self, x: Tensor) -> Tensor:
        """Return where each point is in the source."""
        place = torch.arange(self.points, device=x.device).to(x.dtype)
        return self.scale * place if self.aligned else self.scale * (place + 0.5) - 0.5


def _linear(x: Tensor, axis: Resized) -> Tensor:
    """Return a weighted mean of two neighbours."""
    source = axis.sources(x).clamp(min=0.0)
    low = source.to(torch.int64)
    high = (low + 1).clamp(max=x.shape[axis.dim] - 1)
    first = _rows(x, axis, low)
    weight = _along(x, axis, (source - low).clamp(0.0, 1.0))
    return first + torch.mul(_rows(x, axis, high) - first, weight)


def _cubic(x: Tensor, axis: Resized) -> Tensor:
    """Return a weighted mean of four neighbours."""
    source = axis.sources(x)
    below = source.floor()
    t, low = (source - below).clamp(0.0, 1.0), below.to(torch.int64)
    weights = (_far(t + 1.0), _near(t), _near(1.0 - t), _far(2.0 - t))
    last = x.shape[axis.dim] - 1
    taps = (
        _rows(x, axis, (low + k).clamp(0, last)) * _along(x, axis, weight)
        for k, weight in enumerate(weights, -1)
    )
    return reduce(torch.add, taps)


def _near(t: Tensor) -> Tensor:
    return ((SHARPNESS + 2) * t - (SHARPNESS + 3)) * t * t + 1


def _far(t: Tensor) -> Tensor:
    return ((SHARPNESS * t - 5 * SHARPNESS) * t + 8 * SHARPNESS) * t - 4 * SHARPNESS


def _rows(x: Tensor, axis: Resized, places: Tensor) -> Tensor:
    """Return the elements at some places of a dimension."""
    return x.index_select(axis.dim, places)


def _along(x: Tensor, axis: Resized, values: Tensor) -> Tensor:
    """Return values of the points of a dimension that broadcast over the others."""
    return values.reshape(-1, *[1] * (x.dim() - 1 - axis.dim))


TAPS: dict[tuple[str, int], Callable[[Tensor, Resized], Tensor]] = {
    ("bilinear", 4): _linear,
    ("trilinear", 5): _linear,
    ("bicubic", 4): _cubic,
}
"""(mode, dimensions of the input) -> the interpolation along one dimension."""


def separated(
    x: Tensor, mode: str, size: list[int], aligned: bool, scales: list[float | None]
) -> Tensor:
    """Interpolate x to a size. A plain function, because FX can print it as Python."""
    value = x.float() if x.dtype in HALVES else x
    for k in reversed(range(len(size))):
        scale = _scale(x.shape[k + 2], size[k], aligned, scales[k])
        value = TAPS[mode, x.dim()](value, Resized(k + 2, size[k], scale, aligned))
    return value.to(x.dtype)


def _scale(source: int, points: int, aligned: bool, factor: float | None) -> float:
    """Return the distance of neighbouring points in the source."""
    if aligned:
        return (source - 1.0) / (points - 1.0) if points > 1 else 0
    return 1.0 / factor if factor is not None and factor > 0 else source / points


def separate_interpolation(graph: fx.Graph) -> bool:
    """Interpolate along one dimension after the other: fewer reads go through indices."""
    return replace_interpolations(graph, separated, _arguments)


def _arguments(call: InterpolateCall) -> tuple[Any, ...] | None:
    """Return the arguments of `separated`; None if the interpolation is not matched."""
    if not _is_matched(call.x, call.y, call.mode):
        return None
    return (call.source, call.mode, call.size, call.aligned, call.scales)


def _is_matched(x: Tensor, y: Tensor, mode: str) -> bool:
    """Return whether an interpolation of x to y is matched, and reads fewer elements in parts."""
    if (mode, x.dim()) not in TAPS or min((*x.shape, *y.shape)) == 0:
        return False
    if not x.dtype.is_floating_point or x.requires_grad or not x.is_contiguous():
        return False
    pairs = zip(x.shape[2:-1], y.shape[2:-1], strict=True)
    return all(old <= LONGEST[mode] * new for old, new in pairs)
