"""Whether scatters share loops."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.graph import Scatter, reads
from tcdebug.compiler.schedule.fusing.align import Loops

DEVICES = ("cuda",)
"""Devices whose kernels update elements by atomic operations, so that the order does not matter."""


def may_scatter_together(first: Loops, second: Loops, memory: Mapping[str, str]) -> bool:
    """Return whether the scatters of two groups, if there are any, may be one kernel.

    On a GPU they may if they update different memory, and nothing else is computed. They then read
    once what both add. On a CPU the points of a scatter run one after the other.
    """
    nodes = (*first.nodes, *second.nodes)
    if not any(isinstance(n, Scatter) for n in nodes):
        return True
    if not all(isinstance(n, Scatter) and n.out.device.type in DEVICES for n in nodes):
        return False
    updated = [memory.get(n.into, n.into) for n in nodes if isinstance(n, Scatter)]
    others = [
        {memory.get(name, name) for name in reads(n)} - {mine}
        for n, mine in zip(nodes, updated, strict=True)
    ]
    return len({*updated}) == len(updated) and all(o.isdisjoint(updated) for o in others)
