"""Drop nodes from the end; what is left unread becomes the output."""

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
from tcdebug.minifier.reduction.operators.transforms import lowered


@dataclass(frozen=True)
class Truncate:
    """Ordered: edit k drops the last k + 1 nodes."""

    name: str = "truncate"
    ordered: bool = True

    def edits(self, case: Case) -> list[str]:
        """The nodes from the last one on; one must stay. Ends of regions stay too."""
        return [n.name for n in reversed(case.calls) if not changes_state(n)][:-1]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The graph without these nodes, returning what nobody reads then."""
        graph, named = editable(case)
        set_outputs(graph, [])
        for name in edits:
            erase_with_marks(graph, named[name])
        outputs = lowered(graph, leaves(graph))
        if not outputs:
            return None
        set_outputs(graph, outputs)
        remove_dead(graph)
        return case.with_graph(graph)
