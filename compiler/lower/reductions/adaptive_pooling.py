"""Lowerings of pooling to a given number of windows, whose lengths may differ.

Window i of n over s elements starts at i * s // n and ends before the ceiling of (i + 1) * s / n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as combinations

import torch

from tcdebug.compiler.ir.arithmetic.index import Index, product, to_index
from tcdebug.compiler.ir.build import all_of, call, cast, compute_dtype, constant, index_value
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.reductions.pooling import avg_pool, max_pool_with_places
from tcdebug.compiler.lower.reductions.windows import check_few, clamped, flat_place, lowest

aten = torch.ops.aten


class _Windows:
    """The windows along one dimension."""

    def __init__(self, size: Index, count: Index) -> None:
        if size.constant is None or count.constant is None:
            raise NotLowered(f"{count} windows over {size} elements")
        self.size, self.count = size, count
        places, windows = size.constant, count.constant
        bounds = [(i * places // windows, -(-(i + 1) * places // windows)) for i in range(windows)]
        self.longest = max((end - start for start, end in bounds), default=0)
        self.even = places > 0 and windows > 0 and places % windows == 0

    def start(self, window: Index) -> Index:
        """Return the first position of a window."""
        if self.even:
            return window * self.longest
        return window * self.size // self.count

    def length(self, window: Index) -> Index:
        """Return the number of positions in a window."""
        if self.even:
            return to_index(self.longest)
        return ((window + 1) * self.size + (self.count - 1)) // self.count - self.start(window)


def _windows(site: Site, x: Tensor, dims: int) -> list[_Windows]:
    return [_Windows(s, n) for s, n in zip(x.size[-dims:], site.size[-dims:], strict=True)]


def _places(
    x: Tensor, point: Point, windows: Sequence[_Windows], other: Expr
) -> Iterator[tuple[Point, Expr]]:
    """Yield the positions in the window of a point, in row-major order, and the elements there.

    The element is `other` at positions past the end of a shorter window.
    """
    dims = len(windows)
    for steps in combinations(*(range(w.longest) for w in windows)):
        conditions: list[Expr] = []
        place: list[Index] = []
        for window, where, step in zip(windows, point[-dims:], steps, strict=True):
            if step and not window.even:
                inside = call("lt", index_value(to_index(step)), index_value(window.length(where)))
                conditions.append(inside)
            at = window.start(where) + step
            place.append(clamped(at, window.size, before=False, behind=not window.even))
        value = x.at((*point[:-dims], *place), other.dtype)
        if conditions:
            value = call("where", all_of(conditions), value, other)
        yield tuple(place), value


def adaptive_avg_pool(dims: int) -> Lowering:
    """Return the mean of each of a given number of windows."""

    def lower(site: Site, x: Tensor, size: object) -> Tensor:
        windows = _windows(site, x, dims)
        if all(w.even for w in windows):
            even: Tensor = avg_pool(dims)(site, x, [w.longest for w in windows])
            return even
        check_few([w.longest for w in windows])
        result, compute = site.dtype, compute_dtype(site.dtype)
        zero = constant(compute, 0)

        def element(point: Point) -> Expr:
            total = zero
            for _, value in _places(x, point, windows, zero):
                total = call("add", total, value)
            lengths = [w.length(at) for w, at in zip(windows, point[-dims:], strict=True)]
            count = cast(index_value(product(lengths)), compute)
            return cast(call("div", total, count), result)

        return site.tensor(element)

    return lower


def adaptive_max_pool(dims: int) -> Lowering:
    """Return the largest element of each window, and its position in the input.

    The last NaN wins.
    """

    def lower(site: Site, x: Tensor, size: object) -> tuple[Tensor, Tensor]:
        windows = _windows(site, x, dims)
        if all(w.even for w in windows):
            pool = max_pool_with_places(dims)
            even: tuple[Tensor, Tensor] = pool(site, x, [w.longest for w in windows])
            return even
        check_few([w.longest for w in windows])
        result, compute = site.dtype, compute_dtype(site.dtype)
        bottom = lowest(compute)

        def largest(point: Point) -> Expr:
            best = bottom
            for _, value in _places(x, point, windows, bottom):
                best = call("maximum", best, value)
            return cast(best, result)

        def place_of_largest(point: Point) -> Expr:
            starts = [w.start(at) for w, at in zip(windows, point[-dims:], strict=True)]
            best, where = bottom, index_value(flat_place(starts, x.size[-dims:]))
            for place, value in _places(x, point, windows, bottom):
                here = index_value(flat_place(place, x.size[-dims:]))
                wins = call("gt", value, best)
                if compute.is_floating_point:
                    wins = call("bitwise_or", wins, call("isnan", value))
                where = call("where", wins, here, where)
                best = call("maximum", best, value)
            return where

        return site.tensor(largest), site.tensor(place_of_largest, torch.int64)

    return lower


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool(2),
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool(3),
    aten.adaptive_max_pool2d.default: adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: adaptive_max_pool(3),
}
