"""Decompositions of standard deviations with eager's precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcdebug.compiler.ir.operations import HALVES

aten = torch.ops.aten


def _wide(x: torch.Tensor) -> torch.Tensor:
    """x in the dtype of eager's arithmetic: float64 on a CPU, as squares can overflow float32."""
    if x.device.type == "cpu":
        return x.to(torch.float64)
    return x.to(torch.float32) if x.dtype in HALVES else x


def std(
    x: torch.Tensor,
    dims: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Return the square root of the variance. Only for floating-point dtypes."""
    if not x.is_floating_point():
        return NotImplemented
    if x.device.type == "cpu" and x.dtype != torch.float64:
        sizes = [x.shape[d] for d in dims] if dims else list(x.shape)
        count = math.prod(sizes)
        freedom = count - (1 if correction is None else correction)
        if isinstance(count, int) and freedom > 0:
            return _root(_variance(x, dims, keepdim, count, freedom)).to(x.dtype)
    variance = aten.var.correction(_wide(x), dims, correction=correction, keepdim=keepdim)
    return aten.sqrt.default(variance).to(x.dtype)


def _variance(
    x: torch.Tensor, dims: Sequence[int] | None, keepdim: bool, count: int, freedom: float
) -> torch.Tensor:
    """Return a variance in float64, which is 0 for equal numbers, without divisions.

    Deviations are from the mean in float32, which is exact if all numbers are equal. The square of
    its rounding error is subtracted afterwards.
    """
    wide = x.to(torch.float64)
    mean = aten.sum.dim_IntList(wide, dims, True) * (1 / count)
    rounded = mean.to(torch.float32).to(torch.float64)
    deviation, error = wide - rounded, mean - rounded
    squares = aten.sum.dim_IntList(deviation * deviation, dims, True) - error * error * count
    variance: torch.Tensor = aten.clamp_min.default(squares, 0.0) * (1 / freedom)
    if keepdim:
        return variance
    squeezed: torch.Tensor = aten.squeeze.dims(variance, [*(dims or range(x.dim()))])
    return squeezed


def _root(x: torch.Tensor) -> torch.Tensor:
    """Return the root of numbers in float64 as float32, computed in float32.

    Numbers beyond its range are scaled. A root in float64 takes as long as several sums.
    """
    big, small = x > 2.0**96, x < 2.0**-96
    scaled = torch.where(big, x * 2.0**-160, torch.where(small, x * 2.0**200, x))
    root: torch.Tensor = aten.sqrt.default(scaled.to(torch.float32))
    return torch.where(big, root * 2.0**80, torch.where(small, root * 2.0**-100, root))


def std_mean(
    x: torch.Tensor,
    dims: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Return the standard deviation and the mean. Only for floating-point dtypes."""
    if not x.is_floating_point():
        return NotImplemented
    mean = aten.mean.dim(_wide(x), dims, keepdim).to(x.dtype)
    return std(x, dims, correction=correction, keepdim=keepdim), mean


DEVIATION: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.std.correction: std,
    aten.std_mean.correction: std_mean,
}
