"""Lowerings of operators that read at indices given by data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Index, to_index
from tcdebug.compiler.ir.build import call, cast, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Indirect
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten


def _place(value: Expr, size: Index) -> Index:
    return to_index(Indirect(cast(value, torch.int64), size, checked=True))


def _place_in_range(value: Expr, size: Index) -> Index:
    """Return a position that is known to be in range, and may count from the end."""
    place = cast(value, torch.int64)
    below = call("lt", place, constant(torch.int64, 0))
    place = call("where", below, call("add", place, index_value(size)), place)
    return to_index(Indirect(place, size, checked=False))


def index(
    site: Site,
    x: Tensor,
    positions: Sequence[Tensor | None],
    *,
    place: Callable[[Expr, Index], Index] = _place,
) -> Tensor:
    """x[positions], where positions are index tensors, or None for whole dimensions."""
    given = [k for k, p in enumerate(positions) if p is not None]
    tensors = [p for p in positions if p is not None]
    if any(p.dtype in (torch.bool, torch.uint8) for p in tensors):
        raise NotLowered("a mask as an index")
    rank = max(len(p.size) for p in tensors)
    adjacent = given == list(range(given[0], given[-1] + 1))
    front = given[0] if adjacent else 0  # the first result dimension of the index tensors

    def element(point: Point) -> Expr:
        where = point[front : front + rank]
        rest = [*point[:front], *point[front + rank :]]
        own: list[Index] = []
        for k, size in enumerate(x.size):
            position = positions[k] if k < len(positions) else None
            if position is None:
                own.append(rest.pop(0))
            else:
                own.append(place(position.broadcast(where), size))
        return x.at(tuple(own))

    return site.tensor(element)


def unsafe_index(site: Site, x: Tensor, positions: Sequence[Tensor | None]) -> Tensor:
    """x[positions], where decompositions have computed positions in range.

    On a GPU they are not checked: gradients of paddings by reflection take 8 % less time (H100).
    """
    on_cpu = site.result().device.type == "cpu"
    return index(site, x, positions, place=_place if on_cpu else _place_in_range)


def index_select(site: Site, x: Tensor, dim: int, positions: Tensor) -> Tensor:
    """Slices of x at positions along a dimension."""
    at = normal_dim(dim, len(x.size))
    one_row = as_row(x)

    def element(point: Point) -> Expr:
        # a 0-d tensor has one position and gives a 0-d result
        where = positions.at((point[at] if point else ZERO,) if positions.size else ())
        place = _place(where, one_row.size[at])
        return one_row.at((*point[:at], place, *point[at + 1 :]))

    return site.tensor(element)


def as_row(x: Tensor) -> Tensor:
    """Return a 0-d tensor as a tensor of size (1,); other tensors unchanged."""
    return x if x.size else x.viewed([ONE], lambda point: ())


def gather(
    site: Site, x: Tensor, dim: int, positions: Tensor, *, sparse_grad: bool = False
) -> Tensor:
    """Elements of x at positions along a dimension that another tensor gives."""
    at = normal_dim(dim, len(x.size))
    source, places = as_row(x), as_row(positions)

    def element(point: Point) -> Expr:
        full = point or (ZERO,)
        where = _place(places.at(full), source.size[at])
        return source.at((*full[:at], where, *full[at + 1 :]))

    return site.tensor(element)


def embedding(
    site: Site,
    weight: Tensor,
    positions: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table."""
    rank = len(positions.size)

    def element(point: Point) -> Expr:
        return weight.at((_place(positions.at(point[:rank]), weight.size[0]), point[-1]))

    return site.tensor(element)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.index.Tensor: index,
    aten._unsafe_index.Tensor: unsafe_index,
    aten.index_select.default: index_select,
    aten.gather.default: gather,
    aten.embedding.default: embedding,
}
