"""Decompositions of standard deviations with eager's precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def _wide(x: torch.Tensor) -> torch.Tensor:
    """x in the dtype of eager's arithmetic: float64 on a CPU, as squares can overflow float32."""
    halves = (torch.bfloat16, torch.float16)
    if x.device.type == "cpu":
        return x.to(torch.float64)
    return x.to(torch.float32) if x.dtype in halves else x


def std(
    x: torch.Tensor,
    dims: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Return the square root of the variance, rounded once. Only for floating-point dtypes."""
    if not x.is_floating_point():
        return NotImplemented
    variance = aten.var.correction(_wide(x), dims, correction=correction, keepdim=keepdim)
    return aten.sqrt.default(variance).to(x.dtype)


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
