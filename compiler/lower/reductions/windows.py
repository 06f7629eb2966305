"""The windows of pooling, and the positions that each window contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Index, is_nonnegative, product, to_index
from tcdebug.compiler.ir.arithmetic.order import extremum, is_less
from tcdebug.compiler.ir.build import all_of, call, constant, index_value
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

MOST_PLACES = 27
"""The most positions of a window, or windows over a position, that are unrolled."""


@dataclass(frozen=True)
class DimensionWindows:
    """The windows along one dimension. Window i starts at i * stride - padding."""

    kernel: int
    stride: int
    padding: int
    dilation: int
    size: Index
    """The size of the dimension of the input."""
    windows: Index

    def place(self, window: Index, step: int) -> Index:
        """Return the step-th position of a window, which may be in the padding."""
        return window * self.stride - self.padding + step * self.dilation

    def may_miss(self, step: int) -> tuple[bool, bool]:
        """Return whether the step-th position of some window is before the input, and after it."""
        before = step * self.dilation < self.padding
        last = (self.windows - 1) * self.stride - self.padding + step * self.dilation
        behind = (self.size - 1 - last).constant
        return before, behind is None or behind < 0

    @property
    def overlap(self) -> int:
        """The most windows that contain one position."""
        return -(-self.kernel // self.stride)

    def window_at(self, place: Index, back: int) -> Index:
        """Return the last window that may contain a position, or the window `back` before that."""
        return (place + self.padding) // self.stride - back

    def holds(self, place: Index, back: int) -> list[Expr]:
        """Return the conditions under which that window exists and contains the position."""
        window = self.window_at(place, back)
        conditions = [] if is_nonnegative(window) else [at_least(window, ZERO)]
        if not is_less(window, self.windows):
            conditions.append(below(window, self.windows))
        if self.kernel < (back + 1) * self.stride:
            step = (place + self.padding) % self.stride + back * self.stride
            conditions.append(below(step, to_index(self.kernel)))
        return conditions

    def length(self, window: Index, *, padded: bool) -> Index:
        """Return the number of positions of a window in the input, or in the padded input."""
        start = self.place(window, 0)
        end = extremum("min", start + self.kernel, self.size + (self.padding if padded else 0))
        return end - (start if padded else extremum("max", start, ZERO))


def below(place: Index, end: Index) -> Expr:
    """Return the condition that a position is before an end."""
    return call("lt", index_value(place), index_value(end))


def at_least(place: Index, start: Index) -> Expr:
    """Return the condition that a position is not before a start."""
    return call("ge", index_value(place), index_value(start))


def _each(value: int | Sequence[int], dims: int) -> list[int]:
    """Return one number for each dimension."""
    given = [value] if isinstance(value, int) else list(value)
    if not all(isinstance(v, int) for v in given):
        raise NotLowered("a window of symbolic size")
    return given * dims if len(given) == 1 else given


def spans_of(
    dims: int,
    sizes: Sequence[Index],
    windows: Sequence[Index],
    kernel: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
) -> list[DimensionWindows]:
    """Return the windows along each of the last `dims` dimensions.

    The default stride is `kernel`.
    """
    steps = stride if isinstance(stride, int) or len(stride) else kernel
    lengths, strides, paddings, dilations = (
        _each(v, dims) for v in (kernel, steps, padding, dilation)
    )
    return [
        DimensionWindows(lengths[k], strides[k], paddings[k], dilations[k], size, count)
        for k, (size, count) in enumerate(zip(sizes[-dims:], windows[-dims:], strict=True))
    ]


def one_by_one(
    spans: Sequence[DimensionWindows], *, backward: bool = False
) -> Iterator[tuple[DimensionWindows, ...]]:
    """Yield the steps of combining windows along the last dimension, then the one before, ...

    In each step, the windows along the other dimensions have one element. In backward, positions
    take the place of windows.
    """
    for k, span in reversed(list(enumerate(spans))):
        if span.kernel == span.stride == 1 and not span.padding:
            continue
        sizes = (s.windows if (j < k) == backward else s.size for j, s in enumerate(spans))
        along = [DimensionWindows(1, 1, 0, 1, n, n) for n in sizes]
        along[k] = span
        yield tuple(along)


def check_few(counts: Sequence[int]) -> None:
    """Raise NotLowered if windows of these sizes have too many positions to unroll."""
    if (total := prod(counts)) > MOST_PLACES:
        raise NotLowered(f"windows of {total} elements")


def clamped(place: Index, size: Index, *, before: bool, behind: bool) -> Index:
    """Return a position clamped to the dimension, for loads without a branch."""
    if before:
        place = extremum("max", place, ZERO)
    return extremum("min", place, size - 1) if behind else place


def window_of(
    x: Tensor,
    point: Point,
    spans: Sequence[DimensionWindows],
    other: Expr,
    *,
    repeats: bool = False,
) -> Iterator[tuple[Point, Expr]]:
    """Yield the positions in the window of a point, in row-major order, and the elements there.

    Elements in the padding are `other`, or with `repeats` the nearest elements of the input.
    """
    outer, windows = point[: -len(spans)], point[-len(spans) :]
    for steps in combinations(*(range(s.kernel) for s in spans)):
        conditions: list[Expr] = []
        place: list[Index] = []
        for span, window, step in zip(spans, windows, steps, strict=True):
            at = span.place(window, step)
            before, behind = span.may_miss(step)
            conditions += [at_least(at, ZERO)] if before else []
            conditions += [below(at, span.size)] if behind else []
            place.append(clamped(at, span.size, before=before, behind=behind))
        value = x.at((*outer, *place), other.dtype)
        if conditions and not repeats:
            value = call("where", all_of(conditions), value, other)
        yield tuple(place), value


def divisor(
    spans: Sequence[DimensionWindows], windows: Sequence[Index], padded: bool, override: int | None
) -> Index:
    """Return the divisor of the sum over a window: its number of positions, or a given number."""
    if override is not None:
        return to_index(override)
    return product(s.length(w, padded=padded) for s, w in zip(spans, windows, strict=True))


def flat_place(place: Sequence[Index], sizes: Sequence[Index]) -> Index:
    """Return the row-major index of a position."""
    flat = ZERO
    for where, size in zip(place, sizes, strict=True):
        flat = flat * size + where
    return flat


def place_dtype(sizes: Sequence[Index]) -> torch.dtype:
    """Return a dtype for row-major indices. Half as many bits are twice as many lanes."""
    places = product(sizes).constant
    return torch.int64 if places is None or places >= 1 << 31 else torch.int32


def lowest(dtype: torch.dtype) -> Expr:
    """Return the smallest value of a dtype; -inf for floats."""
    if dtype.is_floating_point:
        return constant(dtype, float("-inf"))
    return constant(dtype, torch.iinfo(dtype).min)
