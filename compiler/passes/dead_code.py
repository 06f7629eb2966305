"""Removes pure calls whose results are unused.

Calls with effects stay: writes, random draws, unknown operators, and calls that bind a size.
"""

from __future__ import annotations

from torch import fx

from tcdebug.compiler.effects import is_pure


def dead_code(graph: fx.Graph) -> bool:
    """Remove pure calls whose results are unused."""
    changed = False
    for node in reversed(list(graph.nodes)):
        if not node.users and is_pure(node):
            graph.erase_node(node)
            changed = True
    return changed
