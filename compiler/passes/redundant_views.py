"""Merges views of views.

Matches `view` of `view`, of which the last decides the shape, and `permute` of `permute`, which
compose. Guarantees the same tensor, in the same memory. Other pairs of views stay.
"""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten


def redundant_views(graph: fx.Graph) -> bool:
    """Merge a view of a view, and a permutation of a permutation."""
    changed = False
    for node in list(graph.nodes):
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or source.target is not node.target:
            continue
        if node.target is aten.view.default:
            node.replace_input_with(source, _operand(source))
        elif node.target is aten.permute.default:
            inner, outer = source.args[1], node.args[1]
            composed = [inner[d] for d in outer]  # type: ignore[index] # lists of int
            node.args = (source.args[0], composed)
        else:
            continue
        changed = True
        if not source.users:
            graph.erase_node(source)
    return changed


def _operand(node: fx.Node) -> fx.Node:
    operand = node.args[0]
    assert isinstance(operand, fx.Node)
    return operand
