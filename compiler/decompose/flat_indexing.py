"""Operators on elements in row-major order, without a look at the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Elements by their places; torch's decomposition reads an index that is one number.

    The result lies in row-major order, also of an index that does not.
    """
    row = aten.reshape.default(x, [-1])
    taken = aten.index.Tensor(row, [aten.reshape.default(index, [-1])])
    result: torch.Tensor = aten.reshape.default(taken, index.shape)
    return result


def put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> Any:
    """x with elements replaced by their places, or added to."""
    if not x.is_contiguous():
        return NotImplemented
    row = aten.reshape.default(x, [-1])
    values = aten.reshape.default(source, index.shape)
    return aten.reshape.default(aten.index_put.default(row, [index], values, accumulate), x.shape)


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Any:
    """x with the elements of source, one after the other, where the mask holds."""
    if not isinstance(source.numel(), int) or source.numel() == 0:  # or known only by running
        return NotImplemented
    shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call] # torch's
    wide, chosen = x.expand(shape), mask.expand(shape)
    row = aten.reshape.default(chosen, [-1])
    place = aten.clamp_min.default(aten.cumsum.default(row, 0) - 1, 0)
    taken = aten.index.Tensor(aten.reshape.default(source, [-1]), [place])
    result = aten.where.self(row, taken, aten.reshape.default(wide, [-1]))
    return aten.reshape.default(result, wide.shape)


def dist(x: torch.Tensor, y: torch.Tensor, p: float = 2) -> Any:
    """The norm of the difference of all elements."""
    return aten.linalg_vector_norm.default(x - y, p)


FLAT_INDEXING: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.take.default: take,
    aten.put.default: put,
    aten.masked_scatter.default: masked_scatter,
    aten.dist.default: dist,
}
