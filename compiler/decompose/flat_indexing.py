"""Decompositions of operators that index elements in row-major order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the elements at flat indices, contiguous even if `index` is not.

    torch's decomposition reads the data of an index with one element.
    """
    row = aten.reshape.default(x, [-1])
    taken = aten.index.Tensor(row, [aten.reshape.default(index, [-1])])
    result: torch.Tensor = aten.reshape.default(taken, index.shape)
    return result


def put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> Any:
    """x with the elements at flat indices replaced, or added to."""
    if not x.is_contiguous():
        return NotImplemented
    row = aten.reshape.default(x, [-1])
    values = aten.reshape.default(source, index.shape)
    return aten.reshape.default(aten.index_put.default(row, [index], values, accumulate), x.shape)


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """x with consecutive elements of source where the mask holds."""
    if not isinstance(source.numel(), int) or source.numel() == 0:  # symbolic or empty
        return NotImplemented
    shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call] # torch's
    wide, chosen = x.expand(shape), mask.expand(shape)
    row = aten.reshape.default(chosen, [-1])
    place = aten.clamp_min.default(aten.cumsum.default(row, 0) - 1, 0)
    taken = aten.index.Tensor(aten.reshape.default(source, [-1]), [place])
    result = aten.where.self(row, taken, aten.reshape.default(wide, [-1]))
    return aten.reshape.default(result, wide.shape)


def dist(x: torch.Tensor, y: torch.Tensor, p: float = 2) -> Any:
    """Return the p-norm of x - y over all elements."""
    return aten.linalg_vector_norm.default(x - y, p)


FLAT_INDEXING: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.take.default: take,
    aten.put.default: put,
    aten.masked_scatter.default: masked_scatter,
    aten.dist.default: dist,
}
