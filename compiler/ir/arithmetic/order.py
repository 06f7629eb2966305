"""The order of indices: which is greater, and the greater or smaller of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tcdebug.compiler.ir.arithmetic.index import Atom, Index, is_nonnegative, to_index
from tcdebug.compiler.ir.arithmetic.polynomial import Bounds


def is_positive(value: Index) -> bool:
    """True if the value is known to be > 0."""
    return is_nonnegative(value - 1)


def is_less(left: Index, right: Index) -> bool:
    """True if left < right is known for all values of axes and symbols."""
    return is_positive(right - left)


class Extremum(Atom):
    """max(a, b) or min(a, b)."""

    __slots__ = ("kind", "left", "right")

    def __init__(self, kind: str, left: Index, right: Index) -> None:
        super().__init__(f"{kind}({left.key}, {right.key})")
        self.kind = kind
        self.left = left
        self.right = right

    def text(self, index_text: Callable[[Index], str]) -> str:
        return f"{self.kind}({index_text(self.left)}, {index_text(self.right)})"

    def children(self) -> tuple[Index, ...]:
        return (self.left, self.right)

    def bounds(self) -> Bounds[Atom]:
        if not self.left.axes and not self.right.axes:
            return super().bounds()
        left_low, left_high = self.left.bounds
        right_low, right_high = self.right.bounds
        lows = [x for x in (left_low, right_low) if x is not None]
        highs = [x for x in (left_high, right_high) if x is not None]
        if self.kind == "max":
            low = lows[0] if lows else None
            high = extremum("max", *highs) if len(highs) == 2 else None
        else:
            low = extremum("min", *lows) if len(lows) == 2 else None
            high = highs[0] if highs else None
        return None if low is None else low.terms, None if high is None else high.terms

    def at_least(self) -> int | None:
        known = [is_nonnegative(self.left), is_nonnegative(self.right)]
        return 0 if (any(known) if self.kind == "max" else all(known)) else None

    def substitute(self, values: Mapping[Atom, Index]) -> Index:
        return extremum(self.kind, self.left.substitute(values), self.right.substitute(values))


def extremum(kind: str, left: Index, right: Index) -> Index:
    """Return the max or min of two indices, simplified if their order is known."""
    if left.constant is not None and right.constant is not None:
        pick = max if kind == "max" else min
        return to_index(pick(left.constant, right.constant))
    if is_nonnegative(left - right):
        return left if kind == "max" else right
    if is_nonnegative(right - left):
        return right if kind == "max" else left
    first, second = sorted((left, right), key=lambda index: index.key)
    return to_index(Extremum(kind, first, second))
