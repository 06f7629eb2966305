"""Lowerings of scatters that combine what meets at a place, with what was there or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.ir.index import Index
from tcdebug.compiler.ir.operations import neutral
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.scatter.scattering import (
    combined,
    in_place,
    number,
    of_one,
    place_along,
    place_of_row,
    wide,
)

aten = torch.ops.aten


@dataclass(frozen=True)
class _Meeting:
    """Points, the place of each, and what it brings: what a scatter combines."""

    points: tuple[Index, ...]
    place: Callable[[Point], Point]
    brought: Callable[[Point], Expr]


OPERATIONS = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "maximum",
    "amin": "minimum", "mean": "add",
}  # fmt: skip
"""What combines two values, by the names that operators have for it."""


def _reduced(site: Site, x: Tensor, kind: str, meeting: _Meeting, *, include_self: bool) -> Tensor:
    """x with what meets at a place combined, or that alone."""
    if site.dtype == torch.bool or kind not in OPERATIONS:
        raise NotLowered(f"{kind} of {site.dtype}")
    name, start = OPERATIONS[kind], wide(x)

    def joined(point: Point, old: Expr) -> Expr:
        return combined(name, old, meeting.brought(point))

    if not include_self:
        alone = constant(start.dtype, neutral(REDUCTION_OF[name], start.dtype))
        start = site.scatter(
            start, meeting.points, meeting.place, lambda point, old: alone, rounded=False
        )
    if kind != "mean":
        return site.scatter(start, meeting.points, meeting.place, joined)
    dtype = start.dtype
    total = site.scatter(start, meeting.points, meeting.place, joined, rounded=False)
    first = constant(dtype, int(include_self))
    one = constant(dtype, 1)
    count = site.scatter(
        Tensor(dtype, x.size, lambda point: first),
        meeting.points,
        meeting.place,
        lambda point, old: call("add", old, one),
        rounded=False,
    )
    divide = "div" if dtype.is_floating_point else "floor_div"

    def mean(point: Point) -> Expr:
        several = call("maximum", count.at(point), one)  # none met where there are none
        return cast(call(divide, total.at(point), several), site.dtype)

    return site.tensor(mean)


REDUCTION_OF = {"add": "sum", "mul": "prod", "maximum": "max", "minimum": "min"}


def scatter_reduce(
    site: Site,
    x: Tensor,
    dim: int,
    positions: Tensor,
    source: Operand,
    reduce: str,
    include_self: bool = True,
) -> Tensor:
    """scatter that combines what meets."""
    given = source if isinstance(source, Tensor) else number(site, source)
    if not x.size:
        return _reduced_to_one(site, x, positions, given, reduce, include_self=include_self)
    if not positions.size:
        raise NotLowered("a 0-d index")
    at = normal_dim(dim, len(x.size))

    def brought(point: Point) -> Expr:
        return given.at(point if given.size else (), site.dtype)

    meeting = _Meeting(positions.size, place_along(x, at, positions), brought)
    return _reduced(site, x, reduce, meeting, include_self=include_self)


def _reduced_to_one(
    site: Site, x: Tensor, positions: Tensor, source: Tensor, kind: str, *, include_self: bool
) -> Tensor:
    """A 0-d tensor and one element that meets it."""
    if kind not in OPERATIONS or site.dtype == torch.bool:
        raise NotLowered(f"{kind} of {site.dtype}")
    if not include_self:
        return of_one(site, x, positions, source, "")
    result = of_one(site, x, positions, source, OPERATIONS[kind])
    if kind != "mean":
        return result
    wide_dtype = compute_dtype(site.dtype)
    divide, two = "div" if wide_dtype.is_floating_point else "floor_div", constant(wide_dtype, 2)
    return site.tensor(
        lambda point: cast(call(divide, result.at(point, wide_dtype), two), site.dtype)
    )


def index_reduce(
    site: Site,
    x: Tensor,
    dim: int,
    positions: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Slices along a dimension, combined with what meets them."""
    if not x.size:
        return _reduced_to_one(site, x, positions, source, reduce, include_self=include_self)
    if not positions.size or not source.size:
        raise NotLowered("a 0-d index")
    meeting = _Meeting(
        source.size,
        place_of_row(x, normal_dim(dim, len(x.size)), positions),
        lambda point: source.at(point, site.dtype),
    )
    return _reduced(site, x, reduce, meeting, include_self=include_self)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.scatter.reduce: scatter_reduce,
    aten.scatter.value_reduce: scatter_reduce,
    aten.scatter_reduce.two: scatter_reduce,
    aten.scatter_reduce_.two: in_place(scatter_reduce),
    aten.index_reduce.default: index_reduce,
}
