"""Lowerings of `unfold` and `fold` of images: the elements of each window as a column, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product as combinations

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Index, to_index
from tcdebug.compiler.ir.build import all_of, call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.reductions.windows import (
    DimensionWindows,
    at_least,
    below,
    check_few,
    clamped,
    spans_of,
)

aten = torch.ops.aten


def _spans(
    sizes: Sequence[Index],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[DimensionWindows]:
    """Return the windows over the two dimensions of an image."""
    windows = [
        (size + (2 * before - apart * (length - 1) - 1)) // step + 1
        for size, length, apart, before, step in zip(
            sizes, kernel, dilation, padding, stride, strict=True
        )
    ]
    return spans_of(2, sizes, windows, kernel, stride, padding, dilation)


def im2col(
    site: Site,
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Return the elements of the windows: a row per channel and step, a column per window."""
    spans = _spans(x.size[-2:], kernel, dilation, padding, stride)
    across = spans[1].windows
    padded = any(padding)

    def element(point: Point) -> Expr:
        *batch, row, column = point
        steps = (row // kernel[1]) % kernel[0], row % kernel[1]
        windows = column // across, column % across
        conditions: list[Expr] = []
        place: list[Index] = []
        for span, window, step in zip(spans, windows, steps, strict=True):
            at = window * span.stride - span.padding + step * span.dilation
            if padded:
                conditions += [at_least(at, ZERO), below(at, span.size)]
            place.append(clamped(at, span.size, before=padded, behind=padded))
        value = x.at((*batch, row // (kernel[0] * kernel[1]), *place))
        if not padded:
            return value
        return call("where", all_of(conditions), value, constant(x.dtype, 0))

    return site.tensor(element)


def col2im(
    site: Site,
    x: Tensor,
    sizes: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Return the sum, for each element of an image, of its occurrences in the columns."""
    spans = _spans(site.size[-2:], kernel, dilation, padding, stride)
    if any(s.dilation != 1 for s in spans):
        raise NotLowered("dilated windows")
    check_few([s.overlap for s in spans])
    result, compute = site.dtype, compute_dtype(site.dtype)
    zero = constant(compute, 0)

    def element(point: Point) -> Expr:
        *batch, channel, _, _ = point
        shares: list[Expr] = []
        for backs in combinations(*(range(s.overlap) for s in spans)):
            conditions: list[Expr] = []
            row, column = channel, ZERO
            for span, place, back in zip(spans, point[-2:], backs, strict=True):
                conditions += span.holds(place, back)
                window = clamped(
                    span.window_at(place, back), span.windows, before=True, behind=True
                )
                step = (place + span.padding) % span.stride + back * span.stride
                step = clamped(step, to_index(span.kernel), before=False, behind=True)
                row, column = row * span.kernel + step, column * span.windows + window
            value = x.at((*batch, row, column), compute)
            shares.append(call("where", all_of(conditions), value, zero))
        return cast(reduce(lambda total, share: call("add", total, share), shares, zero), result)

    return site.tensor(element)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.im2col.default: im2col,
    aten.col2im.default: col2im,
}
