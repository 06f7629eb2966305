"""Lowerings of scatters that reduce all values for an element, with its old value or without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.arithmetic.index import Index
from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.ir.operations import neutral
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.scatter.scattering import (
    combined,
    in_place,
    number,
    place_along,
    place_of_row,
    scatter_to_scalar,
    widened,
)

aten = torch.ops.aten


@dataclass(frozen=True)
class _Contributions:
    """The values that a scatter combines: for each point, an element and a value for it."""

    points: tuple[Index, ...]
    place: Callable[[Point], Point]
    value: Callable[[Point], Expr]


OPERATIONS = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "maximum",
    "amin": "minimum", "mean": "add",
}  # fmt: skip
"""Name of a reduction in arguments of operators -> the operation that combines two values."""


def _reduced(
    site: Site, x: Tensor, kind: str, contributions: _Contributions, *, include_self: bool
) -> Tensor:
    """x with the contributions to each element combined, with its old value if `include_self`."""
    points, place = contributions.points, contributions.place
    if site.dtype == torch.bool or kind not in OPERATIONS:
        raise NotLowered(f"the reduction {kind} of {site.dtype}")
    name, start = OPERATIONS[kind], widened(x)

    def joined(point: Point, old: Expr) -> Expr:
        return combined(name, old, contributions.value(point))

    if not include_self:
        initial = constant(start.dtype, neutral(REDUCTION_OF[name], start.dtype))
        start = site.scatter(start, points, place, lambda point, old: initial, rounded=False)
    if kind != "mean":
        return site.scatter(start, points, place, joined)
    dtype = start.dtype
    total = site.scatter(start, points, place, joined, rounded=False)
    first = constant(dtype, int(include_self))
    one = constant(dtype, 1)
    count = site.scatter(
        Tensor(dtype, x.size, lambda point: first),
        points,
        place,
        lambda point, old: call("add", old, one),
        rounded=False,
    )
    divide = "div" if dtype.is_floating_point else "floor_div"

    def mean(point: Point) -> Expr:
        values = call("maximum", count.at(point), one)  # an element may have no value
        return cast(call(divide, total.at(point), values), site.dtype)

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
    """Return a scatter along a dimension that combines the values for each element."""
    given = source if isinstance(source, Tensor) else number(site, source)
    if not x.size:
        return _reduced_to_scalar(site, x, positions, given, reduce, include_self=include_self)
    if not positions.size:
        raise NotLowered("a 0-d index")
    at = normal_dim(dim, len(x.size))

    def value(point: Point) -> Expr:
        return given.at(point if given.size else (), site.dtype)

    contributions = _Contributions(positions.size, place_along(x, at, positions), value)
    return _reduced(site, x, reduce, contributions, include_self=include_self)


def _reduced_to_scalar(
    site: Site, x: Tensor, positions: Tensor, source: Tensor, kind: str, *, include_self: bool
) -> Tensor:
    """Return a 0-d tensor combined with one value."""
    if kind not in OPERATIONS or site.dtype == torch.bool:
        raise NotLowered(f"the reduction {kind} of {site.dtype}")
    if not include_self:
        return scatter_to_scalar(site, x, positions, source, "")
    result = scatter_to_scalar(site, x, positions, source, OPERATIONS[kind])
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
    """Slices along a dimension, combined with the values for them."""
    if not x.size:
        return _reduced_to_scalar(site, x, positions, source, reduce, include_self=include_self)
    if not positions.size or not source.size:
        raise NotLowered("a 0-d index")
    contributions = _Contributions(
        source.size,
        place_of_row(x, normal_dim(dim, len(x.size)), positions),
        lambda point: source.at(point, site.dtype),
    )
    return _reduced(site, x, reduce, contributions, include_self=include_self)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.scatter.reduce: scatter_reduce,
    aten.scatter.value_reduce: scatter_reduce,
    aten.scatter_reduce.two: scatter_reduce,
    aten.scatter_reduce_.two: in_place(scatter_reduce),
    aten.index_reduce.default: index_reduce,
}
