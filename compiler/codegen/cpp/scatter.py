"""The loops of a scatter: threads and vector lanes share axes whose points never meet."""

from __future__ import annotations

from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.index import Axis

PIECE = 256
"""Points of the innermost axis that a thread takes at a time, where it is the only one to share."""


@dataclass(frozen=True)
class ScatterLoops:
    """Loops from the outside in: shared among threads, in order, and in vector lanes."""

    shared: tuple[Axis, ...]
    ordered: tuple[Axis, ...]
    lanes: Axis | None

    @property
    def pieces(self) -> bool:
        """Whether threads share pieces of the lanes, there being nothing else to share."""
        return self.lanes is not None and not self.shared


def scatter_loops(kernel: FlatKernel) -> ScatterLoops:
    """How to run the one node of a scatter."""
    (node,) = kernel.nodes
    lanes = kernel.outer[-1] if kernel.outer and kernel.outer[-1] in node.apart else None
    shared = tuple(a for a in kernel.outer if a in node.apart and a != lanes)
    ordered = tuple(a for a in kernel.outer if a not in node.apart)
    return ScatterLoops(shared, ordered, lanes)
