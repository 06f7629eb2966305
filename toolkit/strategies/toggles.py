"""Units of the embedded compiler that are switched off. The results must stay right."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

FAMILIES = (
    "fuse", "fuse.inline", "fuse.vertical", "fuse.reduction", "fuse.horizontal", "codegen",
    "codegen.vectorize", "memory.reuse", "passes", "decompose", "lower", "pregrad", "partition",
)  # fmt: skip
"""Units and families of units that are switched off. Whole families change what is fused."""


@cache
def toggles(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """Return units to switch off: none for three of four programs, one to three for the others.

    Hypothesis checks each new strategy, which takes longer than to draw from it.
    """
    some = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
    chosen = some.map(lambda found: tuple(sorted(found)))
    nothing: st.SearchStrategy[tuple[str, ...]] = st.just(())
    return st.one_of(nothing, nothing, nothing, chosen)
