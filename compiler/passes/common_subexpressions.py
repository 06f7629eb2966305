"""Merges pure calls with equal operators and arguments.

Guarantees that merged tensors have the same dtype, device, size and strides. Results of the graph,
and the tensors that they view, stay separate: callers may write to them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import is_pure
from tcdebug.compiler.passes.replacement import escaping, same_tensor


def common_subexpressions(graph: fx.Graph) -> bool:
    """Merge pure calls with equal arguments."""
    kept = escaping(graph)
    first: dict[Any, fx.Node] = {}
    changed = False
    for node in list(graph.nodes):
        if not is_pure(node) or node in kept:
            continue
        key = _key(node)
        earlier = first.setdefault(key, node)
        if earlier is not node and _replaceable(node, earlier):
            node.replace_all_uses_with(earlier)
            graph.erase_node(node)
            changed = True
    return changed


def _replaceable(node: fx.Node, earlier: fx.Node) -> bool:
    if isinstance(node.meta.get("val"), torch.Tensor):
        return same_tensor(node, earlier)
    return True


def _key(node: fx.Node) -> Any:
    return (node.target, _frozen(node.args), _frozen(dict(node.kwargs)))


def _frozen(value: Any) -> Any:
    """Return a hashable form in which 1, 1.0, True and -0.0 differ."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, tuple | list):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _frozen(v)) for k, v in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _frozen((value.start, value.stop, value.step)))
    return (type(value).__name__, repr(value))
