"""Decomposes index_fill into a selection by a mask of one dimension, which can be fused.

torch's decomposition copies the tensor and writes slices of it. That of torch 2.11 does not compile
if the tensor is not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

aten = torch.ops.aten


def index_fill(
    x: torch.Tensor, dim: int, index: torch.Tensor, value: float | torch.Tensor
) -> torch.Tensor:
    """x with the slices at `index` along `dim` replaced by a number, or by a 0-d tensor."""
    size, at = (x.shape[dim], dim % x.dim()) if x.dim() else (1, 0)
    unmarked = torch.zeros(size, dtype=torch.bool, device=x.device)
    marked = torch.ones((), dtype=torch.bool, device=x.device)
    mask = aten.index_put.default(unmarked, [index.reshape(-1)], marked)
    shape = [size if k == at else 1 for k in range(x.dim())]
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    return torch.where(mask.reshape(shape), value.to(x.dtype), x)


INDEX_FILL: dict[torch._ops.OpOverload, Callable[..., torch.Tensor]] = {
    aten.index_fill.int_Scalar: index_fill,
    aten.index_fill.int_Tensor: index_fill,
}
