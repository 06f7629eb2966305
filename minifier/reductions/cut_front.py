"""Replace nodes from the beginning by inputs that hold their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.minifier.case import Case
from tcdebug.minifier.reductions.regions import changes_state
from tcdebug.minifier.reductions.surgery import TooLarge, node_values, replace_by_inputs


@dataclass(frozen=True)
class CutFront:
    """Ordered: edit k cuts the first k + 1 nodes off."""

    name: str = "cut_front"
    ordered: bool = True

    def edits(self, case: Case) -> list[str]:
        """The nodes from the first one on; one must stay."""
        return [n.name for n in case.calls if not changes_state(n)][:-1]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The graph that begins after these nodes."""
        chosen = set(edits)
        border = [
            n.name
            for n in case.calls
            if n.name in chosen and any(u.name not in chosen for u in n.users)
        ]
        try:
            return replace_by_inputs(case, border, node_values(case))
        except TooLarge:
            return None
