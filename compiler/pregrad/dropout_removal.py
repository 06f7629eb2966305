"""Removes dropout with the literal `training=False`.

Guarantees eager's aliasing: eager returns the input itself. In-place dropout, and a flag that is
not a literal, stay.
"""

from __future__ import annotations

import torch
from torch import fx

from tcdebug.compiler.pregrad.node_values import argument

DROPOUTS = (
    torch.nn.functional.dropout,
    torch.nn.functional.dropout1d,
    torch.nn.functional.dropout2d,
    torch.nn.functional.dropout3d,
    torch.nn.functional.alpha_dropout,
    torch.nn.functional.feature_alpha_dropout,
)


def dropout_removal(graph: fx.Graph) -> bool:
    """Remove dropout that is off because of `training=False`. Eager returns the input itself."""
    changed = False
    for node in list(graph.nodes):
        if node.target not in DROPOUTS or argument(node, 2, "training", True) is not False:
            continue
        source = node.args[0]
        if isinstance(source, fx.Node) and not argument(node, 3, "inplace", False):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            changed = True
    return changed
