"""Windows that are not unrolled in the expression of an element, because they are long or overlap.

The positions of a long window are dimensions of a tensor that is reduced, so that loops, lanes and
pieces are chosen as for any other reduction. Windows that overlap, and long ones that reach into
padding, are combined along one dimension after the other. Each expression then has few elements,
and conditions on one axis, whose parts become loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import torch

from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant, index_value
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Site
from tcdebug.compiler.lower.interface.tensor import Element, NotLowered, Point, Tensor
from tcdebug.compiler.lower.reductions.windows import (
    MOST_PLACES,
    DimensionWindows,
    flat_place,
    lowest,
    one_by_one,
    place_dtype,
    window_of,
)

STORED_ROW = 2
"""The cost of storing a combined row and of reading it, in that of an element of a window."""


def are_long(spans: Sequence[DimensionWindows]) -> bool:
    """Return whether windows have too many elements to be unrolled."""
    return prod(s.kernel for s in spans) > MOST_PLACES


def overlap_in_rows(site: Site, spans: Sequence[DimensionWindows]) -> bool:
    """Return whether windows overlap along several dimensions of a contiguous tensor on a CPU."""
    result = site.result()
    overlapping = sum(s.stride < s.kernel for s in spans)
    return overlapping > 1 and result.device.type == "cpu" and result.stride(-1) == 1


def share_rows(site: Site, spans: Sequence[DimensionWindows]) -> bool:
    """Return whether it pays on a CPU to combine once the rows that windows share.

    Unrolled windows in padding have conditions on all their axes, for which no loop is divided.
    """
    if not overlap_in_rows(site, spans):
        return False
    rows = sum(s.kernel * prod(outer.stride for outer in spans[:k]) for k, s in enumerate(spans))
    return _are_padded(spans) or rows + STORED_ROW < prod(s.kernel for s in spans)


def sums_of(site: Site, x: Tensor, spans: Sequence[DimensionWindows]) -> Tensor:
    """Emit the sum of each window, in the dtype of arithmetic. Padding is zero.

    Raises NotLowered if ATen is faster.
    """
    compute = compute_dtype(x.dtype)
    if _by_dimension(site, spans):
        zero = constant(compute, 0)

        def total(point: Point, rows: Tensor, along: Sequence[DimensionWindows]) -> Expr:
            values = (value for _, value in window_of(rows, point, along, zero))
            return reduce(lambda sum_, value: call("add", sum_, value), values)

        return _combined(site, x, spans, total, compute)
    return _reduced(site, "sum", x, spans, _elements(x, spans), compute)


def largest_of(
    site: Site, x: Tensor, spans: Sequence[DimensionWindows], *, with_place: bool
) -> tuple[Tensor, Tensor]:
    """Emit the largest element of each window, and its position in the input.

    Raises NotLowered if ATen is faster. That includes positions in windows that reach into padding,
    where each element would be read through a clamped index.
    """
    if with_place and (_are_padded(spans) or any(s.dilation != 1 for s in spans)):
        raise NotLowered("positions in long windows with padding or dilation")
    compute = compute_dtype(x.dtype)
    if _by_dimension(site, spans):
        repeats = all(s.dilation == 1 for s in spans)

        def best(point: Point, rows: Tensor, along: Sequence[DimensionWindows]) -> Expr:
            elements = window_of(rows, point, along, lowest(compute), repeats=repeats)
            values = (value for _, value in elements)
            return cast(reduce(lambda a, b: call("maximum", a, b), values), x.dtype)

        largest = _combined(site, x, spans, best, x.dtype)
    else:
        largest = _reduced(site, "max", x, spans, _elements(x, spans), compute)
    return largest, _place_of_largest(site, x, spans, largest)


def _are_padded(spans: Sequence[DimensionWindows]) -> bool:
    return any(s.may_miss(0)[0] or s.may_miss(s.kernel - 1)[1] for s in spans)


def _by_dimension(site: Site, spans: Sequence[DimensionWindows]) -> bool:
    """Return whether windows are combined along one dimension after the other, on a CPU.

    Windows that overlap share rows, so k + k elements are read for each instead of k * k. As a
    reduction, elements around padding would be read through clamped indices. Raises NotLowered for
    padding in channels-last layout and in windows that are too long.
    """
    if site.result().device.type != "cpu":
        raise NotLowered("long windows on a GPU")
    are_padded = _are_padded(spans)
    fits = all(s.kernel <= MOST_PLACES for s in spans) and site.result().stride(-1) == 1
    if are_padded and not fits:
        raise NotLowered("long windows with padding")
    return fits and (are_padded or any(s.stride < s.kernel for s in spans))


def _combined(
    site: Site,
    x: Tensor,
    spans: Sequence[DimensionWindows],
    combine: Callable[[Point, Tensor, Sequence[DimensionWindows]], Expr],
    dtype: torch.dtype,
) -> Tensor:
    """Emit a tensor for each dimension, in which windows along it are combined, unrolled."""
    dims = len(spans)
    for along in one_by_one(spans):
        size = (*x.size[:-dims], *(s.windows for s in along))

        def element(
            point: Point, rows: Tensor = x, along: Sequence[DimensionWindows] = along
        ) -> Expr:
            return combine(point, rows, along)

        x = site.store(Tensor(dtype, size, element), suffix="_rows")
    return x


def _place_of_largest(
    site: Site, x: Tensor, spans: Sequence[DimensionWindows], largest: Tensor
) -> Tensor:
    """Emit the position of the first of a window's largest elements, or of its last NaN."""
    dims = len(spans)
    sizes = x.size[-dims:]
    counted, element = place_dtype(sizes), _elements(x, spans)

    def rank(point: Point) -> Expr:
        """Return what is smallest for the wanted position: that itself, or the inverted NaN's."""
        value = element(point)
        place = cast(index_value(flat_place(_place(spans, point), sizes)), counted)
        best = largest.at(point[:-dims], value.dtype)
        none = constant(counted, torch.iinfo(counted).max)
        found = call("where", call("eq", value, best), place, none)
        if not value.dtype.is_floating_point:
            return found
        return call("where", call("isnan", value), call("bitwise_not", place), found)

    ranks = _reduced(site, "min", x, spans, rank, counted, "_place")

    def place_of(point: Point) -> Expr:
        found = ranks.at(point)
        is_nan = call("lt", found, constant(counted, 0))
        return cast(call("where", is_nan, call("bitwise_not", found), found), torch.int64)

    return Tensor(torch.int64, largest.size, place_of)


def _place(spans: Sequence[DimensionWindows], point: Point) -> Point:
    """Return the position in the input of a step in a window.

    The last indices of the point are those of the windows, and of the steps in them.
    """
    dims = len(spans)
    windows, steps = point[-2 * dims : -dims], point[-dims:]
    return tuple(
        w * span.stride - span.padding + step * span.dilation
        for span, w, step in zip(spans, windows, steps, strict=True)
    )


def _elements(x: Tensor, spans: Sequence[DimensionWindows]) -> Element:
    """Return the element at each step in a window, in the dtype of arithmetic."""
    compute, dims = compute_dtype(x.dtype), len(spans)
    return lambda point: x.at((*point[: -2 * dims], *_place(spans, point)), compute)


def _reduced(
    site: Site,
    kind: str,
    x: Tensor,
    spans: Sequence[DimensionWindows],
    element: Element,
    dtype: torch.dtype,
    suffix: str = "",
) -> Tensor:
    """Emit a reduction of what `element` returns for the steps of each window."""
    dims = len(spans)
    windows = (s.windows for s in spans)
    size = (*x.size[:-dims], *windows, *(to_index(s.kernel) for s in spans))
    steps = range(len(size) - dims, len(size))
    return site.reduce(kind, Tensor(dtype, size, element), steps, keepdim=False, suffix=suffix)
