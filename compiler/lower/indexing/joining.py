"""Lowerings of operators that join tensors or read them at shifted indices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Index, is_nonnegative, to_index
from tcdebug.compiler.ir.build import all_of, call, cast, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded
from tcdebug.compiler.lower.indexing.views import Size, from_end, normal_dim, slice_start
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten

MOST_JOINED = 8
"""The most operands of a lowered cat. Each element tests the operands one after the other."""


def _before(place: Index, end: Index) -> Expr:
    return call("lt", index_value(place), index_value(end))


def _from(place: Index, start: Index) -> Expr:
    return call("ge", index_value(place), index_value(start))


def cat(site: Site, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors concatenated along a dimension."""
    dtype, rank = site.dtype, len(site.size)
    parts = [x for x in tensors if len(x.size) == rank]  # eager skips empty 1-d tensors
    if len(parts) > MOST_JOINED:
        raise NotLowered(f"more than {MOST_JOINED} tensors")
    at = normal_dim(dim, rank)
    starts = [ZERO]
    for part in parts:
        starts.append(starts[-1] + part.size[at])

    def element(point: Point) -> Expr:
        def piece(k: int) -> Expr:
            shifted = (*point[:at], point[at] - starts[k], *point[at + 1 :])
            return parts[k].at(shifted, dtype)

        result = piece(len(parts) - 1)
        for k in range(len(parts) - 2, -1, -1):
            result = Guarded(dtype, _before(point[at], starts[k + 1]), piece(k), result)
        return result

    return site.tensor(element)


def pad(site: Site, x: Tensor, padding: Sequence[Size], value: Operand = 0) -> Tensor:
    """Return a tensor padded with a constant. Negative padding crops."""
    rank = len(x.size)
    before = [ZERO] * rank
    guards: list[tuple[int, bool, bool]] = []
    for k in range(len(padding) // 2):
        low, high = to_index(padding[2 * k]), to_index(padding[2 * k + 1])
        before[rank - 1 - k] = low
        guards.append((rank - 1 - k, not is_nonnegative(-low), not is_nonnegative(-high)))
    dtype = site.dtype
    other = site.scalar(value, dtype)

    def element(point: Point) -> Expr:
        inside = tuple(p - b for p, b in zip(point, before, strict=True))
        conditions: list[Expr] = []
        for k, below, above in guards:
            if below:
                conditions.append(_from(point[k], before[k]))
            if above:
                conditions.append(_before(point[k], before[k] + x.size[k]))
        if not conditions:
            return x.at(inside, dtype)
        return Guarded(dtype, all_of(conditions), x.at(inside, dtype), other)

    return site.tensor(element)


def flip(site: Site, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a tensor with dimensions reversed."""
    flipped = {normal_dim(d, len(x.size)) for d in dims}

    def element(point: Point) -> Expr:
        return x.at(tuple(x.size[k] - 1 - p if k in flipped else p for k, p in enumerate(point)))

    return site.tensor(element)


def repeat(site: Site, x: Tensor, repeats: Sequence[Size]) -> Tensor:
    """Return a tensor repeated along its dimensions."""
    skip = len(repeats) - len(x.size)

    def element(point: Point) -> Expr:
        return x.at(
            tuple(ZERO if s == 1 else p % s for p, s in zip(point[skip:], x.size, strict=True))
        )

    return site.tensor(element)


def select_scatter(site: Site, x: Tensor, source: Tensor, dim: int, position: Size) -> Tensor:
    """x with one slice along a dimension replaced."""
    at = normal_dim(dim, len(x.size))
    where = from_end(position, x.size[at])
    dtype = site.dtype

    def element(point: Point) -> Expr:
        here = call("eq", index_value(point[at]), index_value(where))
        return Guarded(
            dtype, here, source.at((*point[:at], *point[at + 1 :]), dtype), x.at(point, dtype)
        )

    return site.tensor(element)


def slice_scatter(
    site: Site,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Tensor:
    """x with every step-th slice of a range replaced."""
    at = normal_dim(dim, len(x.size))
    first, stride, dtype = slice_start(start, x.size[at]), to_index(step), site.dtype
    if not source.size:
        raise NotLowered("a 0-d source")
    last = first + source.size[at] * stride

    def element(point: Point) -> Expr:
        offset = point[at] - first
        conditions = [_from(point[at], first), _before(point[at], last)]
        if stride != 1:
            conditions.append(call("eq", index_value(offset % stride), constant(torch.int64, 0)))
        inside = (*point[:at], offset // stride, *point[at + 1 :])
        return Guarded(dtype, all_of(conditions), source.broadcast(inside, dtype), x.at(point))

    return site.tensor(element)


def triangle(upper: bool) -> Lowering:
    """triu or tril: zero below or above a diagonal."""

    def lower(site: Site, x: Tensor, diagonal: Size = 0) -> Tensor:
        zero = cast(constant(torch.bool, False), site.dtype)

        def element(point: Point) -> Expr:
            column = index_value(point[-1] - point[-2])
            limit = index_value(to_index(diagonal))
            kept = call("ge" if upper else "le", column, limit)
            return call("where", kept, x.at(point), zero)

        return site.tensor(element)

    return lower


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.cat.default: cat,
    aten.constant_pad_nd.default: pad,
    aten.flip.default: flip,
    aten.repeat.default: repeat,
    aten.select_scatter.default: select_scatter,
    aten.slice_scatter.default: slice_scatter,
    aten.tril.default: triangle(upper=False),
    aten.triu.default: triangle(upper=True),
}
