"""Compares runs whose random numbers differ: those of eager, and of a compiler that draws its own.

Only what does not depend on the numbers is compared: how many values there are, their types, dtypes
and shapes, and whether they are finite. A single run may be infinite by chance, so several runs
with different seeds are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tcdebug.minifier.judging.compare import Difference

SEEDS = (1234, 1235, 1236)
"""The seeds of the runs."""
NONFINITE = "nonfinite"


def difference_of_draws(
    eager: Sequence[Sequence[Any]], compiled: Sequence[Sequence[Any]], name: str
) -> Difference | None:
    """Return the first value that is wrong whatever the numbers are; None if there is none.

    Each element holds the values of one run. The first runs decide about types and shapes.
    """
    if len(eager[0]) != len(compiled[0]):
        return Difference("kind", name, f"{len(compiled[0])} values instead of {len(eager[0])}")
    values = zip(zip(*eager, strict=True), zip(*compiled, strict=True), strict=True)
    for position, (ours, theirs) in enumerate(values):
        where = f"{name} {position}"
        found = _of_type(ours[0], theirs[0], where) or _nonfinite(ours, theirs, where)
        if found is not None:
            return found
    return None


def _of_type(eager: Any, compiled: Any, where: str) -> Difference | None:
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        same = type(eager) is type(compiled)
        return None if same else Difference("kind", where, f"{compiled!r} instead of {eager!r}")
    if eager.dtype != compiled.dtype:
        return Difference("dtype", where, f"{compiled.dtype} instead of {eager.dtype}")
    if eager.shape != compiled.shape:
        return Difference("shape", where, f"{tuple(compiled.shape)}, not {tuple(eager.shape)}")
    return None


def _nonfinite(eager: Sequence[Any], compiled: Sequence[Any], where: str) -> Difference | None:
    """Return a difference if each run of eager is finite and no compiled run is."""
    if len(eager) < len(SEEDS) or not all(map(_is_finite, eager)) or any(map(_is_finite, compiled)):
        return None
    detail = f"each of {len(compiled)} runs has NaN or infinity, and eager has none in as many"
    return Difference(NONFINITE, where, detail)


def _is_finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return True
    return bool(torch.isfinite(value).all())
