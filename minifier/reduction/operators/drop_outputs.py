"""Return fewer values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.surgery import editable, remove_dead, set_outputs


@dataclass(frozen=True)
class DropOutputs:
    """Drop any subset of the outputs except one."""

    name: str = "drop_outputs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the outputs if there are several."""
        names = [n.name for n in case.graph.output_node().all_input_nodes]
        return names if len(names) > 1 else []

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph that returns only the other outputs."""
        graph, named = editable(case)
        dropped = {named[name] for name in edits}
        outputs = [n for n in graph.output_node().all_input_nodes if n not in dropped]
        if not outputs:
            return None
        set_outputs(graph, outputs)
        remove_dead(graph)
        return case.with_graph(graph)
