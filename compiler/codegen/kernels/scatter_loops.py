"""Chooses the loops of a scatter: only axes with disjoint addresses run in parallel."""

from __future__ import annotations

from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.arithmetic.index import Axis

PIECE = 256
"""Points per piece of the innermost axis, if threads can share only that axis."""


@dataclass(frozen=True)
class ScatterLoops:
    """The loops from outside to inside: shared among threads, sequential, and in vector lanes."""

    shared: tuple[Axis, ...]
    ordered: tuple[Axis, ...]
    lanes: Axis | None

    @property
    def pieces(self) -> bool:
        """Whether threads share pieces of the `lanes` axis, because no other axis can be shared."""
        return self.lanes is not None and not self.shared


def scatter_loops(kernel: FlatKernel) -> ScatterLoops:
    """Return the loops of a kernel whose only node is a scatter."""
    (node,) = kernel.nodes
    lanes = kernel.outer[-1] if kernel.outer and kernel.outer[-1] in node.apart else None
    shared = tuple(a for a in kernel.outer if a in node.apart and a != lanes)
    ordered = tuple(a for a in kernel.outer if a not in node.apart)
    return ScatterLoops(shared, ordered, lanes)
