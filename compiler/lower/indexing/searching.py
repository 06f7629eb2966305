"""Lowerings of operators that search a sorted row.

The binary search is unrolled for the length of the row.
"""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.build import call, cast, constant
from tcdebug.compiler.ir.expr import Expr, Indirect
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.pointwise.elementwise import promoted

aten = torch.ops.aten

MOST_STEPS = 24
"""The most unrolled steps of a search, enough for a row of 16 million elements."""


def _length(row: Tensor) -> int:
    size = row.size[-1].constant
    if size is None or size >= 1 << MOST_STEPS:
        raise NotLowered(f"a row of {row.size[-1]} elements")
    return size


def _found(
    row: Tensor, outer: Point, value: Expr, dtype: torch.dtype, right: bool, sorter: Tensor | None
) -> Expr:
    """Return the number of elements of a sorted row that are smaller, or not larger if `right`.

    The binary search compares the same elements as eager's, because a row that ends with NaN is
    not sorted by this comparison, so the result depends on the elements that are compared.
    """
    length, test = _length(row), "gt" if right else "ge"
    one, last = constant(torch.int64, 1), constant(torch.int64, max(length - 1, 0))
    low: Expr = constant(torch.int64, 0)
    high: Expr = constant(torch.int64, length)
    for _ in range(length.bit_length()):
        middle = call("shift_right", call("add", low, high), one)
        asked = to_index(Indirect(call("minimum", middle, last), row.size[-1], checked=False))
        if sorter is not None:
            at = cast(sorter.at((*outer, asked)), torch.int64)
            asked = to_index(Indirect(at, row.size[-1], checked=True))
        stays = call(test, row.at((*outer, asked), dtype), value)
        done = call("ge", low, high)
        low, high = (
            call("where", call("bitwise_or", done, stays), low, call("add", middle, one)),
            call("where", call("bitwise_or", done, stays), call("minimum", middle, high), high),
        )
    return low


def searchsorted(
    site: Site,
    row: Tensor,
    values: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The positions at which values would be inserted into one sorted row, or into one row each."""
    dtype, result = promoted(row, values), site.dtype
    behind = side == "right" if side is not None else right
    element = None if isinstance(values, Tensor) else site.operand(values, dtype)
    _length(row)

    def found(point: Point) -> Expr:
        outer = point[:-1] if len(row.size) > 1 else ()
        value = element(point) if element else values.at(point, dtype)  # type: ignore[union-attr] # a Tensor
        return cast(_found(row, outer, value, dtype, behind, sorter), result)

    return site.tensor(found)


def bucketize(
    site: Site, values: Operand, row: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """searchsorted with its operands swapped."""
    return searchsorted(site, row, values, right=right)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted,
    aten.bucketize.Tensor: bucketize,
    aten.bucketize.Scalar: bucketize,
}
