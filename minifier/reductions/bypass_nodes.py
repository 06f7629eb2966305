"""Replace a node by one of its operands that has the same shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx

from tcdebug.minifier.case import Case
from tcdebug.minifier.reductions.surgery import editable, finished


@dataclass(frozen=True)
class BypassNodes:
    """Any subset of the nodes that have such an operand."""

    name: str = "bypass_nodes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The nodes that can be left out."""
        return [n.name for n in case.calls if _operand(n) is not None]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The graph with these nodes' users reading the operand instead."""
        graph, named = editable(case)
        for name in edits:
            node = named[name]
            operand = _operand(node)
            if operand is None:
                return None
            node.replace_all_uses_with(operand)
            graph.erase_node(node)
        return finished(case, graph)


def _operand(node: fx.Node) -> fx.Node | None:
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return None
    for operand in node.all_input_nodes:
        other = operand.meta.get("example_value")
        if (
            isinstance(other, torch.Tensor)
            and other.dtype == value.dtype
            and str(tuple(other.shape)) == str(tuple(value.shape))
        ):
            return operand
    return None
