"""Shrink single dimensions to size 1, together with the dimensions that must be equal to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.details.sizes import resized, shapes, small_indices
from tcdebug.minifier.reduction.trial import size_names

MOST = 32
"""The number of sets that are considered. Each costs a trial, and large graphs have hundreds."""


@dataclass(frozen=True)
class ShrinkDimensions:
    """Shrink any subset of the sets of dimensions that must change together."""

    name: str = "shrink_dimensions"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the sets, each as "input.dimension input.dimension ..."."""
        together: dict[str, list[str]] = {}
        dynamic = {i.name: i.dynamic for i in case.inputs}
        for name, sizes in size_names(case).items():
            if name not in shapes(case):
                continue
            for dim, size in enumerate(sizes):
                if shapes(case)[name][dim] > 1 and dim not in dynamic[name]:
                    together.setdefault(size, []).append(f"{name}.{dim}")
        texts = [" ".join(words) for words in together.values()]
        return [text for text in texts[:MOST] if self.apply(case, [text]) is not None]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with size 1 in these dimensions; None if eager cannot run it."""
        chosen = {word for text in edits for word in text.split()}
        old = shapes(case)
        sizes = {
            name: tuple(1 if f"{name}.{dim}" in chosen else s for dim, s in enumerate(shape))
            for name, shape in old.items()
        }
        smaller = {
            before: after
            for name in sizes
            for before, after in zip(old[name], sizes[name], strict=True)
            if before != after
        }
        return resized(small_indices(case, 1), sizes, smaller)
