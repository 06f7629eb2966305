"""The plain tensors that a tensor subclass is made of, by torch's protocol for such classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

COTANGENT_SEED = 1234
"""The seed of the inputs of backward, in searches and in repros."""


def is_wrapper(value: object) -> bool:
    """Return whether a tensor is made of other tensors, and can be taken apart and rebuilt."""
    return (
        isinstance(value, torch.Tensor)
        and not is_awaited(value)
        and all(
            hasattr(type(value), name) for name in ("__tensor_flatten__", "__tensor_unflatten__")
        )
    )


def is_awaited(value: object) -> bool:
    """Return whether a tensor is the result of a collective that may not have finished.

    A compiled graph waits for its results, and returns plain tensors.
    """
    return type(value).__name__ == "AsyncCollectiveTensor" and hasattr(value, "trigger_wait")


def finished(value: Any) -> Any:
    """Return the result of a collective as a plain tensor. Other values do not change."""
    return value.trigger_wait() if is_awaited(value) else value


def plain_values(values: Sequence[Any]) -> list[Any]:
    """Return values in which the name of its class and its parts replace each such tensor."""
    found: list[Any] = []
    for value in map(finished, values):
        found += _described(value) if is_wrapper(value) else [value]
    return found


def _described(value: Any) -> list[Any]:
    parts = [part for part in parts_of(value)[1] if isinstance(part, torch.Tensor)]
    return [type(value).__name__, *plain_values(parts)]


def parts_of(value: Any) -> tuple[list[str], list[Any]]:
    """Return the names of the attributes that a tensor is made of, and their values."""
    names, _ = value.__tensor_flatten__()
    return list(names), [finished(getattr(value, name)) for name in names]


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
    value = finished(value)
    if not is_wrapper(value):
        return change(value) if isinstance(value, torch.Tensor) else value
    (names, parts), context = parts_of(value), value.__tensor_flatten__()[1]
    inner = {n: with_parts(part, change) for n, part in zip(names, parts, strict=True)}
    made = type(value).__tensor_unflatten__(inner, context, value.size(), value.stride())
    return made.detach() if made.requires_grad else made


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the inputs of backward: noise in the layout of the outputs, the same for each call."""
    generator = torch.Generator().manual_seed(COTANGENT_SEED)

    def noise(like: torch.Tensor) -> torch.Tensor:
        if not like.is_floating_point() and not like.is_complex():
            return like
        made = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return made.to(like.device, like.dtype)

    return [with_parts(as_gradient(output), noise) for output in outputs]
