"""The plain tensors that a tensor subclass is made of, by torch's protocol for such classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def is_wrapper(value: object) -> bool:
    """Return whether a tensor is made of other tensors, and can be taken apart and rebuilt."""
    return isinstance(value, torch.Tensor) and all(
        hasattr(type(value), name) for name in ("__tensor_flatten__", "__tensor_unflatten__")
    )


def plain_values(values: Sequence[Any]) -> list[Any]:
    """Return values in which the name of its class and its parts replace each such tensor."""
    found: list[Any] = []
    for value in values:
        found += _described(value) if is_wrapper(value) else [value]
    return found


def _described(value: Any) -> list[Any]:
    parts = [part for part in parts_of(value)[1] if isinstance(part, torch.Tensor)]
    return [type(value).__name__, *plain_values(parts)]


def parts_of(value: Any) -> tuple[list[str], list[Any]]:
    """Return the names of the attributes that a tensor is made of, and their values."""
    names, _ = value.__tensor_flatten__()
    return list(names), [getattr(value, name) for name in names]


def as_gradient(output: Any) -> Any:
    """Return a tensor of the layout that the gradient of a result has.

    Each rank has a summand of some distributed tensors, but the whole of their gradients.
    """
    coerce = getattr(type(output), "__coerce_tangent_metadata__", None)
    with torch.no_grad():
        return coerce(output.detach()) if coerce else output


def with_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tensor like another whose parts are changed, without gradients.

    A tensor that is not made of others is changed itself.
    """
    if not is_wrapper(value):
        return change(value) if isinstance(value, torch.Tensor) else value
    names, context = value.__tensor_flatten__()
    inner = {name: with_parts(getattr(value, name), change) for name in names}
    made = type(value).__tensor_unflatten__(inner, context, value.size(), value.stride())
    return made.detach() if made.requires_grad else made
