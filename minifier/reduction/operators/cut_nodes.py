"""Replace single nodes by inputs that hold their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction.operators.regions import in_regions
from tcdebug.minifier.reduction.operators.surgery import NodeValues, node_values, replace_by_inputs
from tcdebug.minifier.reduction.operators.transforms import is_part


@dataclass(frozen=True)
class CutNodes:
    """Turn any subset of the nodes into inputs, except the last, which `truncate` has found."""

    name: str = "cut_nodes"
    ordered: bool = False
    values_of: NodeValues = node_values

    def edits(self, case: Case) -> list[str]:
        """Return the nodes, those farthest from the last one first.

        Parts of a transform are left out: a node inside it would need them again to be returned.
        """
        kept = in_regions(case.graph)
        nodes = [n for n in case.calls if n.name not in kept and not is_part(n)]
        if not nodes:
            return []
        distance = distances(nodes[-1])
        far = sorted(nodes[:-1], key=lambda n: distance.get(n, len(nodes)), reverse=True)
        return [n.name for n in far]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph with these nodes as inputs. Values that are then unread are returned."""
        return replace_by_inputs(case, edits, self.values_of)


def distances(start: fx.Node) -> dict[fx.Node, int]:
    """Return each call's distance from `start`, in calls along operands and users.

    Paths do not pass through inputs, because every block of a model may read the same input.
    """
    found = {start: 0}
    queue = [start]
    for node in queue:
        for other in (*node.all_input_nodes, *node.users):
            if other not in found and other.op.startswith("call"):
                found[other] = found[node] + 1
                queue.append(other)
    return found
