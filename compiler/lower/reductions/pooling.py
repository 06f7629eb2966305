"""Lowerings of pooling, with the windows unrolled in the expression of an element.

In backward, each element of the input sums over the windows that contain it, in the order in which
eager adds them. Windows with more than MOST_PLACES elements are combined in loops
(`long_windows.py`), and their gradients are left to ATen if they overlap.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product as combinations
from math import prod

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Index, is_nonnegative
from tcdebug.compiler.ir.arithmetic.order import extremum
from tcdebug.compiler.ir.build import (
    all_of,
    call,
    cast,
    compute_dtype,
    constant,
    index_value,
)
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.reductions.long_windows import (
    are_long,
    largest_of,
    overlap_in_rows,
    share_rows,
    sums_of,
)
from tcdebug.compiler.lower.reductions.windows import (
    DimensionWindows,
    check_few,
    clamped,
    divisor,
    flat_place,
    lowest,
    one_by_one,
    place_dtype,
    spans_of,
    window_of,
)

aten = torch.ops.aten

LONGEST_TILE = 3
"""The longest windows whose gradient of the maximum is generated on a CPU."""


def _not_across_channels(site: Site, spans: Sequence[DimensionWindows]) -> None:
    """Raise NotLowered for overlapping windows in channels-last layout, where ATen is faster."""
    if site.result().stride(-1) != 1 and any(s.kernel > s.stride for s in spans):
        raise NotLowered("overlapping windows of channels-last tensors")


def avg_pool(dims: int) -> Lowering:
    """Return the mean of each window, over its elements in the input or including the padding."""

    def lower(
        site: Site,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        result, compute = site.dtype, compute_dtype(site.dtype)
        if not compute.is_floating_point:
            raise NotLowered(f"a mean of {result}")
        spans = spans_of(dims, x.size, site.size, kernel, stride, padding)
        if any(s.padding for s in spans):
            _not_across_channels(site, spans)
        zero = constant(compute, 0)  # to which eager adds a mean, so that it is not -0
        is_unrolled = not are_long(spans) and not share_rows(site, spans)
        sums = None if is_unrolled else sums_of(site, x, spans)

        def sum_at(point: Point) -> Expr:
            if sums is not None:
                return sums.at(point)
            values = [v for _, v in window_of(x, point, spans, zero)]
            return reduce(lambda total, value: call("add", total, value), values)

        def element(point: Point) -> Expr:
            total = sum_at(point)
            count = divisor(spans, point[-dims:], count_include_pad, divisor_override)
            mean = call("div", total, cast(index_value(count), compute))
            return cast(call("add", zero, mean), result)

        return site.tensor(element)

    return lower


def _gathered(
    gradient: Tensor,
    point: Point,
    spans: Sequence[DimensionWindows],
    share: Callable[[Point, Expr], Expr],
    compute: torch.dtype,
) -> Expr:
    """Return the sum of the shares of all windows that contain a position."""
    outer, place = point[: -len(spans)], point[-len(spans) :]
    total: Expr | None = None
    for backs in combinations(*(range(s.overlap - 1, -1, -1) for s in spans)):
        conditions: list[Expr] = []
        windows: list[Index] = []
        for span, where, back in zip(spans, place, backs, strict=True):
            window = span.window_at(where, back)
            conditions += span.holds(where, back)
            before = not is_nonnegative(window)
            windows.append(clamped(window, span.windows, before=before, behind=True))
        at = (*outer, *windows)
        given = share(at, gradient.at(at, compute))
        part = call("where", all_of(conditions), given, constant(compute, 0))
        total = part if total is None else call("add", total, part)
    assert total is not None
    return total


def avg_pool_backward(dims: int) -> Lowering:
    """Return the sum of each element's shares of the gradients of the windows that contain it."""

    def lower(
        site: Site,
        gradient: Tensor,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: int | Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        result, compute = site.dtype, compute_dtype(site.dtype)
        spans = spans_of(dims, x.size, gradient.size, kernel, stride, padding)
        check_few([s.overlap for s in spans])

        def share(at: Point, value: Expr) -> Expr:
            count = divisor(spans, at[-dims:], count_include_pad, divisor_override)
            return call("div", value, cast(index_value(count), compute))

        if not overlap_in_rows(site, spans):
            return site.tensor(
                lambda p: cast(_gathered(gradient, p, spans, share, compute), result)
            )
        total, shared = gradient, share
        for along in one_by_one(spans, backward=True):

            def element(
                point: Point,
                rows: Tensor = total,
                along: Sequence[DimensionWindows] = along,
                shared: Callable[[Point, Expr], Expr] = shared,
            ) -> Expr:
                return _gathered(rows, point, along, shared, compute)

            size = (*x.size[:-dims], *(s.size for s in along))
            total = site.store(Tensor(compute, size, element), suffix="_rows")
            shared = _whole
        return site.tensor(lambda p: total.at(p, result))

    return lower


def _whole(at: Point, value: Expr) -> Expr:
    """Return all of a value, whose share was taken before."""
    return value


def _first(span: DimensionWindows, window: Index) -> Index:
    """Return the first position of a window that is in the input."""
    start = span.place(window, 0)
    if not span.padding:
        return start
    missed = extremum("max", ZERO, (span.dilation - 1 - start) // span.dilation)
    return start + missed * span.dilation


def _places_are_read(site: Site) -> bool:
    """Return whether anything but the values of the maximum may be used."""
    return any(u.target is not operator.getitem or u.args[1] != 0 for u in site.node.users)


def max_pool_with_places(dims: int) -> Lowering:
    """Return the largest element of each window, and its position in the input.

    The last NaN wins.
    """

    def lower(
        site: Site,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        result, compute = site.dtype, compute_dtype(site.dtype)
        spans = spans_of(dims, x.size, site.size, kernel, stride, padding, dilation)
        with_place = _places_are_read(site)
        if are_long(spans) or (not with_place and share_rows(site, spans)):
            values, positions = largest_of(site, x, spans, with_place=with_place)
            return site.tensor(lambda p: values.at(p, result)), positions
        # padding can repeat an element of the window, because a repetition does not win
        repeats = all(s.dilation == 1 for s in spans)
        counted = place_dtype(x.size[-dims:])

        def window(point: Point) -> Iterator[tuple[Point, Expr]]:
            return window_of(x, point, spans, lowest(compute), repeats=repeats)

        def largest(point: Point) -> Expr:
            values = [v for _, v in window(point)]
            return reduce(lambda best, value: call("maximum", best, value), values)

        def place_of_largest(point: Point) -> Expr:
            best = lowest(compute)
            starts = [_first(s, w) for s, w in zip(spans, point[-dims:], strict=True)]
            where = cast(index_value(flat_place(starts, x.size[-dims:])), counted)
            for place, value in window(point):
                here = cast(index_value(flat_place(place, x.size[-dims:])), counted)
                kept = where
                if compute.is_floating_point:
                    kept = call("where", call("isnan", value), here, where)
                where = call("where", call("gt", value, best), here, kept)
                best = call("maximum", best, value)
            return cast(where, torch.int64)

        return (
            site.tensor(lambda p: cast(largest(p), result)),
            site.tensor(place_of_largest, torch.int64),
        )

    return lower


def _is_short_tile(span: DimensionWindows) -> bool:
    """Return whether windows of few elements divide the dimension.

    On a CPU, ATen's gradient of other maxima is faster. It visits each window once, adds to one
    element, and divides nothing, while each element of a lowering visits all windows around it.
    With vectors of AVX2 and gaps of 2 between windows of 3, a lowering took 10 times as long.
    """
    covered = span.windows * span.stride
    return span.stride == span.kernel <= LONGEST_TILE and (span.size - covered).constant == 0


def max_pool_backward(
    site: Site,
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    places: Tensor,
) -> Tensor:
    """Return the sum of the gradients of the windows in which each element is the largest."""
    result, compute, dims = site.dtype, compute_dtype(site.dtype), 2
    spans = spans_of(dims, x.size, gradient.size, kernel, stride, padding, dilation)
    if any(s.dilation != 1 for s in spans):
        raise NotLowered("dilated windows")
    _not_across_channels(site, spans)
    check_few([s.overlap for s in spans])
    if site.result().device.type == "cpu" and not all(map(_is_short_tile, spans)):
        raise NotLowered("windows that overlap, are long, or do not cover the input")

    def element(point: Point) -> Expr:
        here = index_value(flat_place(point[-dims:], x.size[-dims:]))

        def share(at: Point, value: Expr) -> Expr:
            return call("where", call("eq", places.at(at), here), value, constant(compute, 0))

        return cast(_gathered(gradient, point, spans, share, compute), result)

    return site.tensor(element)


def adaptive_avg_pool_backward(dims: int) -> Lowering:
    """Each element's share of the gradient of its window, for windows of equal length."""

    def lower(site: Site, gradient: Tensor, x: Tensor) -> Tensor:
        lengths = _even(x.size[-dims:], gradient.size[-dims:])
        result, compute = site.dtype, compute_dtype(site.dtype)
        count = constant(compute, prod(lengths))

        def element(point: Point) -> Expr:
            windows = (w // n for w, n in zip(point[-dims:], lengths, strict=True))
            value = gradient.at((*point[:-dims], *windows), compute)
            return cast(call("div", value, count), result)

        return site.tensor(element)

    return lower


def _even(sizes: Sequence[Index], windows: Sequence[Index]) -> list[int]:
    """Return the lengths of windows of equal length. Raises NotLowered if sizes do not divide."""
    lengths: list[int] = []
    for size, count in zip(sizes, windows, strict=True):
        if size.constant is None or not count.constant or size.constant % count.constant:
            raise NotLowered(f"{count} windows over {size} elements")
        lengths.append(size.constant // count.constant)
    return lengths


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.avg_pool2d.default: avg_pool(2),
    aten.avg_pool3d.default: avg_pool(3),
    aten.avg_pool2d_backward.default: avg_pool_backward(2),
    aten.avg_pool3d_backward.default: avg_pool_backward(3),
    aten.max_pool2d_with_indices.default: max_pool_with_places(2),
    aten.max_pool3d_with_indices.default: max_pool_with_places(3),
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool_backward(2),
    aten._adaptive_avg_pool3d_backward.default: adaptive_avg_pool_backward(3),
}
