"""Writes a choice of two elements of one row as one element at a chosen place.

A tensor whose slices are copies of its own slices, such as a circular padding, is a choice of two
reads of one tensor. With one read, its producer is computed inside it, and the loop over the row
gets a part for each range in which the place is linear (`codegen/cpp/index_sets.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis, Index, to_index
from tcdebug.compiler.ir.build import call, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, Indirect, Load, rewrite, walk
from tcdebug.compiler.ir.graph import Node, Pointwise
from tcdebug.compiler.ir.linear_parts import linear, ranges

NO_AXIS = Axis("none", ZERO + 1)
SHORTEST = 2
"""The fewest elements of a part on average, as of a part of a loop that reads neighbours."""


def with_chosen_places(node: Node, sizes: Mapping[str, tuple[Index, ...]]) -> Node:
    """Return a node on a CPU with a single read in place of each such choice.

    `sizes` has the size of each buffer.
    """
    if not isinstance(node, Pointwise) or node.out.device.type != "cpu":
        return node
    if not any(isinstance(expr, Guarded) for expr in walk(node.body)):
        return node
    body = rewrite(node.body, lambda expr: _one_read(expr, sizes))
    return node if body is node.body else replace(node, body=body)


def _one_read(expr: Expr, sizes: Mapping[str, tuple[Index, ...]]) -> Expr:
    if not isinstance(expr, Guarded):
        return expr
    chosen, other = expr.body, expr.other
    known = None if expr.condition.axes else linear(expr.condition, NO_AXIS, 0, 1)
    if known is not None:
        return chosen if known.start else other
    if not isinstance(chosen, Load) or not isinstance(other, Load):
        return expr
    if chosen.buffer != other.buffer or chosen.dtype != other.dtype:
        return expr
    pairs = zip(chosen.index, other.index, strict=True)
    different = [k for k, (a, b) in enumerate(pairs) if a != b]
    if len(different) != 1:
        return expr
    at = different[0]
    size = sizes[chosen.buffer][at]
    place = call(
        "where", expr.condition, index_value(chosen.index[at]), index_value(other.index[at])
    )
    if not _is_in_long_parts(place, size.constant):
        return expr
    index = to_index(Indirect(place, size, checked=False))
    return Load(other.dtype, other.buffer, (*other.index[:at], index, *other.index[at + 1 :]))


def _is_in_long_parts(place: Expr, size: int | None) -> bool:
    """Return whether a place is linear in long parts of one axis, and in a row of a size."""
    if size is None or len(place.axes) != 1:
        return False
    (axis,) = place.axes
    parts = ranges(place, axis)
    if not parts or (axis.size.constant or 0) < SHORTEST * len(parts):
        return False
    ends = [value.at(point) for low, high, value in parts for point in (low, high - 1)]
    return all(0 <= end < size for end in ends)
