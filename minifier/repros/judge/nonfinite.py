"""Compares runs of a graph that draws its own random numbers, as `judging/own_draws.py` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def nonfinite(
    eager: Sequence[Mapping[str, list[Any]]], actual: Sequence[Mapping[str, list[Any]]]
) -> str:
    """Compare runs with several seeds. A value must not be finite in eager and never compiled."""
    for phase in eager[0]:
        ours = zip(*(run[phase] for run in eager), strict=True)
        theirs = zip(*(run[phase] for run in actual), strict=True)
        for e, a in zip(ours, theirs, strict=True):
            if all(map(finite, e)) and not any(map(finite, a)):
                return f"{phase} | wrong nonfinite"
    return ""


def finite(value: Any) -> bool:
    """Return whether a value has no NaN or infinity. Sparse and quantized tensors are not read."""
    if not torch.is_tensor(value) or value.layout != torch.strided or value.is_quantized:
        return True
    return bool(torch.isfinite(value).all())
