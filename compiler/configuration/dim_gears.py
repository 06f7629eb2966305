"""Marks the sizes of a dynamic dimension for which CUDA graphs are captured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from tcdebug.compiler.configuration.options import BadOption

ATTRIBUTE = "_tcdebug_dim_gears"


def set_dim_gears(tensor: torch.Tensor, gears: Mapping[int, Sequence[int]]) -> None:
    """Make dimensions of an input dynamic, and capture a CUDA graph for each listed size.

    `gears` maps a dimension to its sizes. Call this before the first call of the compiled
    function. It is meant for mode "reduce-overhead" of backend "tcdebug". Calls with other sizes
    run without a CUDA graph, and an event says so. Raises BadOption.
    """
    for dim, sizes in gears.items():
        if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
            raise BadOption(f"a tensor of {tensor.dim()} dimensions has no dimension {dim!r}")
        if not sizes or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise BadOption(f"the gears of dimension {dim} must be positive sizes, not {sizes!r}")
        torch._dynamo.mark_dynamic(tensor, dim % tensor.dim())
    chosen = {size for sizes in gears.values() for size in sizes}
    setattr(tensor, ATTRIBUTE, tuple(sorted(chosen)))


def gears_of(tensors: Iterable[Any]) -> frozenset[int]:
    """Return the gears that are set on the inputs of a call."""
    return frozenset(gear for t in tensors for gear in getattr(t, ATTRIBUTE, ()))
