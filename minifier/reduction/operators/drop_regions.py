"""Do what is done under no_grad, autocast or vmap without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.regions import regions
from tcdebug.minifier.reduction.operators.surgery import editable, finished


@dataclass(frozen=True)
class DropRegions:
    """Any subset of the regions; each is named by the call at its start."""

    name: str = "drop_regions"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The regions, inner ones first."""
        return [start.name for start, _ in regions(case.graph)]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The graph without the calls that start and end them."""
        graph, named = editable(case)
        for start, end in regions(case.graph):
            if start.name not in edits:
                continue
            graph.erase_node(named[end.name])
            if named[start.name].users:
                return None
            graph.erase_node(named[start.name])
        return finished(case, graph)
