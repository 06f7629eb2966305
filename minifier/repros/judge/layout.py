"""Compares strides and shared memory, for a repro of the layout oracle."""

from __future__ import annotations

from typing import Any

import torch


def layout(eager: list[Any], actual: list[Any]) -> str | None:
    """Return how strides or shared memory differ from eager, or None."""
    eager, actual = strided(eager), strided(actual)
    if list(map(steps, eager)) != list(map(steps, actual)):
        return "strides"
    return "aliasing" if shared(eager) != shared(actual) else None


def strided(values: list[Any]) -> list[torch.Tensor]:
    """Return the tensors that have strides."""
    return [v for v in values if torch.is_tensor(v) and v.layout == torch.strided]


def steps(value: torch.Tensor) -> list[int]:
    """Return the strides of the dimensions that have more than one element."""
    sizes = zip(value.shape, value.stride(), strict=True)
    return [s for n, s in sizes if n > 1 and value.numel() > 1]


def shared(values: list[torch.Tensor]) -> list[int]:
    """Return for each tensor the first one that has the same memory."""
    places = [v.untyped_storage().data_ptr() for v in values]
    return [places.index(p) if p else k for k, p in enumerate(places)]
