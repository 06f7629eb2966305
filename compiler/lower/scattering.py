"""Lowerings of operators that replace elements at places given by data, where each element can
tell for itself whether it is replaced."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.build import all_of, call, cast, compute_dtype, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded
from tcdebug.compiler.ir.index import ZERO, Index, Indirect, to_index
from tcdebug.compiler.lower.site import Lowering, Operand, Site
from tcdebug.compiler.lower.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.views import normal_dim

aten = torch.ops.aten


def _covers(positions: Tensor, x: Tensor, point: Point, at: int) -> list[Expr]:
    """The conditions under which there is a position for a point, dimension `at` aside."""
    return [
        call("lt", index_value(point[k]), index_value(size))
        for k, size in enumerate(positions.size)
        if k != at and size != x.size[k]
    ]


def scatter_one(*, add: bool) -> Lowering:
    """scatter along a dimension where there is one position for each row of the rest.

    No element is written twice, so none has to wait for another.
    """

    def lower(
        site: Site, x: Tensor, dim: int, positions: Tensor, source: Operand
    ) -> Tensor:
        if not x.size or not positions.size:
            raise NotLowered("a 0-d tensor")
        at = normal_dim(dim, len(x.size))
        if positions.size[at] != 1:
            raise NotLowered(f"{positions.size[at]} positions along the dimension")
        dtype = site.dtype
        if add and dtype == torch.bool:
            raise NotLowered("sums of bool")

        wide = compute_dtype(dtype)

        def replacement(row: Point, old: Expr) -> Expr:
            if not isinstance(source, Tensor):
                new = site.scalar(source, dtype)
            else:
                new = source.at(row, dtype)
            return cast(call("add", cast(old, wide), cast(new, wide)), dtype) if add else new

        def element(point: Point) -> Expr:
            row = (*point[:at], ZERO, *point[at + 1 :])
            place = Indirect(cast(positions.at(row), torch.int64), x.size[at], checked=True)
            here = call("eq", index_value(point[at]), index_value(to_index(place)))
            old = x.at(point)
            chosen = call("where", here, replacement(row, old), old)
            conditions = _covers(positions, x, point, at)
            return Guarded(dtype, all_of(conditions), chosen, old) if conditions else chosen

        return site.tensor(element)

    return lower


def diagonal_scatter(
    site: Site, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with a diagonal of two dimensions replaced."""
    a, b = normal_dim(dim1, len(x.size)), normal_dim(dim2, len(x.size))
    below, right = max(-offset, 0), max(offset, 0)
    dtype = site.dtype

    def element(point: Point) -> Expr:
        along: Index = point[a] - below
        here = call("eq", index_value(along), index_value(point[b] - right))
        rest = [p for k, p in enumerate(point) if k not in (a, b)]
        return Guarded(dtype, here, source.at((*rest, along), dtype), x.at(point))

    return site.tensor(element)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.scatter.value: scatter_one(add=False),
    aten.scatter.src: scatter_one(add=False),
    aten.scatter_add.default: scatter_one(add=True),
    aten.diagonal_scatter.default: diagonal_scatter,
}
