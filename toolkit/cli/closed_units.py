"""Checks names of units as far as that is possible without importing torch, which takes seconds.

The families of `CLOSED` have the same units in every program. The units of the others depend on
the operators of torch, or on the program.
"""

from __future__ import annotations

from tcdebug.compiler.codegen import UNITS
from tcdebug.compiler.gate.nearest import nearest
from tcdebug.compiler.gate.toggles import ALL, BadToggle, Toggles, belongs
from tcdebug.minifier.cases.layer_names import CUDAGRAPHS, LAYERS

CLOSED = (
    *(f"partition.{name}" for name in ("cse", "donate", "min_cut", "narrow_places")),
    "partition.recompute",
    *(f"fuse.{name}" for name in ("inline", "vertical", "reduction", "horizontal", "combo")),
    *(f"fuse.{name}" for name in ("equal_elements", "place_by_value", "prologue", "epilogue")),
    *(f"fuse.{name}" for name in ("recompute", "split_reduction", "split_scan")),
    *(f"fuse.{name}" for name in ("split_short_rows", "wide_gathers", "column_sums")),
    *UNITS,
    *(f"codegen.{name}" for name in ("autotune", "block_pointer", "block_size", "combo_kernel")),
    *(f"codegen.{name}" for name in ("cooperative_reduction", "coordinate_descent", "tiling")),
    *(f"codegen.{name}" for name in ("multi_kernel", "persistent_reduction", "split_reduction")),
    "codegen.wide_integers",
    *(f"memory.{name}" for name in ("allocation", "in_place", "order", "reuse")),
    *(f"memory.{name}" for name in ("view", "zero_tensor")),
    *(f"runtime.{name}" for name in ("bodies", "cudagraphs", "direct_calls")),
    *(f"triton.{name}" for name in ("llvm", "multiply_add", "ptxas")),
    CUDAGRAPHS,
    *LAYERS,
)
"""The units of the closed families, of both compilers."""
OTHERS = (
    "pregrad", "decompose", "passes", "lower", "dynamo", "autograd", "user", "option", "config",
    "joint", "postgrad", "freezing", "pass",
)  # fmt: skip
"""The other families."""


def all_known(toggles: Toggles) -> bool:
    """Return whether torch is not needed, since every name is that of a closed family's unit.

    Raises BadToggle if there is no unit of a name.
    """
    return all(
        [_is_known(name) for name in (*sorted(toggles.off), *toggles.first, *sorted(toggles.only))]
    )


def _is_known(name: str) -> bool:
    if name == ALL or any(belongs(unit, name) for unit in CLOSED):
        return True
    family = name.partition(".")[0]
    if family in OTHERS:
        return False
    names = [unit for unit in CLOSED if belongs(unit, family)] or [*CLOSED, *OTHERS]
    if found := nearest(name, names):
        raise BadToggle(f"no unit {name!r}; the nearest are: {', '.join(found)}")
    if len(names) < len(CLOSED):
        raise BadToggle(f"no unit {name!r}; the units of {family} are: {', '.join(names)}")
    return False
