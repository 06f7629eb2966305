"""Replace a node by one of its operands that has the same shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.surgery import editable, finish
from tcdebug.minifier.reduction.trial import Observed, observed, same_kind


@dataclass(frozen=True)
class BypassNodes:
    """Bypass any subset of the nodes that have such an operand."""

    name: str = "bypass_nodes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the nodes that can be bypassed. One must stay."""
        if len(case.calls) == 1:
            return []
        known = observed(case)
        return [n.name for n in case.calls if _operand(n, known) is not None]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph in which the users of these nodes read the operand instead."""
        known = observed(case)
        graph, named = editable(case)
        for node in case.calls:
            if node.name in edits:
                operand = _operand(node, known)
                if operand is None:
                    return None
                named[node.name].replace_all_uses_with(named[operand.name])
                graph.erase_node(named[node.name])
                named[node.name] = named[operand.name]
        return finish(case, graph)


def _operand(node: fx.Node, known: Observed) -> fx.Node | None:
    value = known.values.get(node.name)
    for operand in node.all_input_nodes:
        if same_kind(known.values.get(operand.name), value):
            return operand
    return None
