"""Reads arguments and example values of nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call, which may be given by position or by name."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def example(value: Any) -> Any:
    """Return the example value of a node; any other argument unchanged."""
    return value.meta.get("example_value") if isinstance(value, fx.Node) else value


def example_tensor(value: Any) -> torch.Tensor | None:
    """Return the example value of a node if it is a tensor."""
    found = example(value) if isinstance(value, fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None
