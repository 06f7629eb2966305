"""Replace a node by one of its operands that has the same shape and dtype.

A launch of a kernel has no result, but writes to memory that was allocated for it. That is replaced
by another argument of the launch, and the launch is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.operators.triton_launches import is_launch
from tcdebug.minifier.reduction.operators.surgery import (
    UNWRITTEN,
    editable,
    finish,
    name_of,
    writes,
)
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
        return [n.name for n in case.calls if _replaced(n, known) is not None]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph in which the users of these nodes read the operand instead."""
        known = observed(case)
        graph, named = editable(case)
        for node in case.calls:
            if node.name not in edits:
                continue
            if (replaced := _replaced(node, known)) is None:
                return None
            if is_launch(node):
                graph.erase_node(named[node.name])
            for original, operand in replaced.items():
                if original is node or original.name not in edits:
                    named[original.name].replace_all_uses_with(named[operand.name])
                    graph.erase_node(named[original.name])
                    named[original.name] = named[operand.name]
        return finish(case, graph)


def _replaced(node: fx.Node, known: Observed) -> dict[fx.Node, fx.Node] | None:
    """Return the nodes that disappear with a node, and what replaces them; None if it must stay."""
    disappear = [n for n in node.all_input_nodes if _is_new(n, node)] if is_launch(node) else [node]
    operands = [n for n in node.all_input_nodes if n not in disappear]
    replaced: dict[fx.Node, fx.Node] = {}
    for original in disappear:
        operand = _like(original, operands, known)
        if operand is None:
            return None
        replaced[original] = operand
    return replaced


def _is_new(memory: fx.Node, launch: fx.Node) -> bool:
    """Return whether an argument of a launch is memory that no call before has written."""
    written = any(user < launch and writes(user) for user in memory.users)
    return name_of(memory) in UNWRITTEN and not written


def _like(node: fx.Node, operands: Sequence[fx.Node], known: Observed) -> fx.Node | None:
    """Return the first operand that has the shape and dtype of a node."""
    value = known.values.get(node.name)
    return next((o for o in operands if same_kind(known.values.get(o.name), value)), None)
