"""The memory layout of results, which `--oracle layout` compares in addition to their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tcdebug.minifier.judging.compare import Difference

STRIDES, ALIASING = "strides", "aliasing"
"""The last words of signatures, after "wrong"."""


def layout_difference(
    eager: tuple[Sequence[Any], Sequence[Any]], actual: tuple[Sequence[Any], Sequence[Any]]
) -> Difference | None:
    """Compare the strides of outputs, and which outputs and inputs share memory.

    Each run is given as its outputs and the inputs afterwards, of equal kinds and sizes. Returns
    None if nothing is wrong. Strides of dimensions of size 1 are ignored.
    """
    for place, (e, c) in enumerate(zip(eager[0], actual[0], strict=True)):
        if strides(e) != strides(c):
            detail = f"{c.stride()} instead of {e.stride()}, of {tuple(e.shape)}"
            return Difference(STRIDES, f"output {place}", detail)
    expected, found = shares(*eager), shares(*actual)
    if expected != found:
        detail = f"memory is shared as {found}, not as {expected}"
        return Difference(ALIASING, "inputs and outputs", detail)
    return None


def strides(value: Any) -> list[int]:
    """Return the strides of a tensor's dimensions that are larger than 1."""
    if not _plain(value) or value.numel() < 2:
        return []
    return [s for n, s in zip(value.shape, value.stride(), strict=True) if n > 1]


def _plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def shares(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[int]:
    """Return, for each input and then each output, the first value that it shares memory with."""
    values = (*inputs, *outputs)
    places = [v.untyped_storage().data_ptr() if _plain(v) else 0 for v in values]
    return [places.index(p) if p else k for k, p in enumerate(places)]
