"""Drop nodes from the end of a graph. Values that become unread are returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.regions import changes_state
from tcdebug.minifier.reduction.operators.surgery import (
    editable,
    erase_with_marks,
    leaves,
    remove_dead,
    set_outputs,
)
from tcdebug.minifier.reduction.operators.transforms import outputs_like


@dataclass(frozen=True)
class Truncate:
    """Ordered: edit k drops the last k + 1 nodes."""

    name: str = "truncate"
    ordered: bool = True

    def edits(self, case: Case) -> list[str]:
        """Return the nodes from the last one on, except the first. Ends of regions are kept too."""
        return [n.name for n in reversed(case.calls) if not changes_state(n)][:-1]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph without these nodes. It returns the values that become unread."""
        graph, named = editable(case)
        set_outputs(graph, [])
        for name in edits:
            erase_with_marks(graph, named[name])
        outputs = outputs_like(case.graph, graph, leaves(graph))
        if not outputs:
            return None
        set_outputs(graph, outputs)
        remove_dead(graph)
        return case.with_graph(graph)
