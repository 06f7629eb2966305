"""Shrink all sizes of the inputs at once, so that sizes that must be equal stay equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.details.sizes import (
    literal_sizes,
    resized,
    shapes,
    size_maps,
    small_indices,
)


@dataclass(frozen=True)
class ShrinkShapes:
    """Ordered: edit k caps all sizes at a smaller limit than edit k - 1."""

    name: str = "shrink_shapes"
    ordered: bool = True

    def edits(self, case: Case) -> list[str]:
        """Return the limits: powers of two, 3 and 1, as far as they are below the largest size."""
        sizes = [s for shape in shapes(case).values() for s in shape]
        largest = max([*sizes, *literal_sizes(case)], default=1)
        powers = {1 << k for k in range(largest.bit_length())}
        return [str(limit) for limit in sorted(powers | {3}, reverse=True) if limit < largest]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with the last limit; None if eager runs it with no such sizes."""
        limit = int(edits[-1])
        small = small_indices(case, limit)
        for new in size_maps(case, limit):
            sizes = {
                i.name: tuple(_new(s, new, dim in i.dynamic) for dim, s in enumerate(shape))
                for i in case.inputs
                if (shape := shapes(case).get(i.name)) is not None
            }
            candidate = resized(small, sizes, new)
            if candidate is not None:
                return candidate
        return None


def _new(size: int, new: Mapping[int, int], dynamic: bool) -> int:
    """Return the new size. A symbolic size must not become 1, or it would no longer be symbolic."""
    return max(new.get(size, size), min(size, 2) if dynamic else 0)
