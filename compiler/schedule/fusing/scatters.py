"""Whether scatters share loops."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.graph import Pointwise, Scatter, reads
from tcdebug.compiler.schedule.fusing.align import Loops

DEVICES = ("cuda",)
"""Devices whose kernels update elements by atomic operations, so that the order does not matter."""


def may_scatter_together(first: Loops, second: Loops, memory: Mapping[str, str]) -> bool:
    """Return whether the scatters of two groups, if there are any, may be in one kernel.

    On a GPU they may be if they update different memory, which no other node fills or reads. They
    read once what both add, or compute it. On a CPU the points of a scatter run one after the
    other.
    """
    nodes = (*first.nodes, *second.nodes)
    scatters = [n for n in nodes if isinstance(n, Scatter)]
    if not scatters:
        return True
    if not all(isinstance(n, Pointwise) and n.out.device.type in DEVICES for n in nodes):
        return False
    updated = {memory.get(n.into, n.into): n for n in scatters}
    if len(updated) < len(scatters) or any(n.name in updated for n in nodes):
        return False
    return all(
        updated.get(memory.get(name, name), node) is node for node in nodes for name in reads(node)
    )
