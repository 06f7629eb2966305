"""Which units of the embedded compiler to switch off. The results must stay right."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

FAMILIES = (
    "fuse", "fuse.inline", "fuse.vertical", "fuse.reduction", "fuse.horizontal", "codegen",
    "codegen.vectorize", "memory.reuse", "passes", "decompose", "lower", "pregrad", "partition",
)  # fmt: skip
"""The weights: most often none; then whole families, which give different neighbours."""


@cache
def toggles(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    """Units to switch off: none in three of four programs, otherwise one to three.

    Hypothesis checks each new strategy, which takes longer than to draw from it.
    """
    some = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
    chosen = some.map(lambda found: tuple(sorted(found)))
    nothing: st.SearchStrategy[tuple[str, ...]] = st.just(())
    return st.one_of(nothing, nothing, nothing, chosen)
