"""Replace single nodes by inputs that hold their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.case import Case
from tcdebug.minifier.reductions.regions import in_regions
from tcdebug.minifier.reductions.surgery import TooLarge, node_values, replace_by_inputs


@dataclass(frozen=True)
class CutNodes:
    """Any subset of the nodes becomes inputs."""

    name: str = "cut_nodes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Every node, but for the ends of regions."""
        kept = in_regions(case.graph)
        return [n.name for n in case.calls if n.name not in kept]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The graph with these nodes as inputs; outputs among them are dropped."""
        try:
            return replace_by_inputs(case, edits, node_values(case))
        except TooLarge:
            return None
