"""Tells Dynamo what it knew of the inputs of a graph when it captured the graph from a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


def marks(inputs: Sequence[Any]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the dynamic dimensions, as pairs of input and dimension, and the fixed inputs."""
    dynamic = [(k, dim) for k, given in enumerate(inputs) for dim in given.dynamic]
    return dynamic, [k for k, given in enumerate(inputs) if given.fixed]


def mark_inputs(
    values: Sequence[Any], dynamic: Iterable[tuple[int, int]], fixed: Iterable[int]
) -> None:
    """Mark dynamic dimensions, and inputs whose addresses are fixed."""
    for k, dim in dynamic:
        torch._dynamo.maybe_mark_dynamic(values[k], dim)
    for k in fixed:
        torch._dynamo.mark_static_address(values[k], guard=False)
