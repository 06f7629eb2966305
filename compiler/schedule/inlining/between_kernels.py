"""fuse.recompute, after fusion: a kernel computes again what another kernel computed.

A kernel that cannot be fused with an earlier one, because it also reads the sum of columns, often
reads the same inputs. It then computes values of the earlier kernel from these, if loading them
would take longer, and they are not stored.
"""

from __future__ import annotations

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.cost import GPU_INSTRUCTIONS_PER_BYTE, gpu_instructions, itemsize
from tcdebug.compiler.ir.graph import Graph, Node, Pointwise, output_refs, reads
from tcdebug.compiler.schedule.fusing.fusion import Fusion, Group
from tcdebug.compiler.schedule.inlining.expansion import Expansion, bytes_read, runs_on, shares
from tcdebug.compiler.schedule.inlining.inline import inlined_where, made_elsewhere
from tcdebug.compiler.schedule.inlining.inlining_cost import HELD
from tcdebug.compiler.schedule.inlining.recompute import (
    UNIT,
    evaluations,
    reads_by,
    unfit,
)
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES

EXPOSED = 0.6
"""The share of its instructions that a kernel does not execute while it waits for memory."""


def recompute_between_kernels(fusion: Fusion, gate: Gate) -> Graph:
    """Return the graph of a fusion with some values computed by each kernel that reads them.

    The kernel that stored them still computes them for its own nodes. The result is the same graph
    if nothing is computed again; otherwise it must be fused anew.
    """
    graph = fusion.graph
    if not runs_on(graph, DEVICES):
        return graph
    choice = BetweenKernels(fusion)
    return inlined_where(
        graph,
        gate,
        UNIT,
        lambda producer, consumers, in_memory: "its kernel computes it",
        anyway=choice.pays,
        expanded=choice.expanded,
    )


class BetweenKernels:
    """Decides which values of kernels the other kernels that read them compute again."""

    def __init__(self, fusion: Fusion) -> None:
        graph = fusion.graph
        self.group_of, self.readers = fusion.group_of, fusion.readers
        self.nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
        made = made_elsewhere(graph) | output_refs(graph)
        outside = {n for n in self.nodes if self._outside(n)}
        others = {n for n, node in self.nodes.items() if not isinstance(node, Pointwise)}
        self.expansion = Expansion(graph, made | outside | others)
        """What is stored, or a result of a loop that nothing else can compute. `pays` removes what
        is computed again."""
        self._decided: dict[str, bool] = {}

    def _outside(self, name: str) -> list[Node]:
        """Return the nodes that read a value in other kernels than its own."""
        own, readers = self.group_of[name], self.readers.get(name, set()) & self.nodes.keys()
        return [self.nodes[r] for r in readers if self.group_of[r] is not own]

    def expanded(self, producer: Pointwise) -> Pointwise:
        """Return a producer as other kernels would compute it; unchanged if none reads it."""
        return self.expansion.expanded(producer) if self._outside(producer.name) else producer

    def pays(self, producer: Pointwise, consumer: Node) -> bool:
        """Return whether a consumer computes a producer, which is expanded, again."""
        if self.group_of[producer.name] is self.group_of[consumer.name]:
            return False
        if producer.name not in self._decided:
            found = self._decided[producer.name] = self._pays_everywhere(producer)
            if found:
                self.expansion.stored.discard(producer.name)
        return self._decided[producer.name]

    def _pays_everywhere(self, producer: Pointwise) -> bool:
        """Return whether no kernel takes longer to compute a producer than to load it."""
        if self.expansion.missing(producer):
            return False
        outside = self._outside(producer.name)
        found = reads_by(producer, outside)
        if unfit(producer, outside, found):
            return False
        groups = {id(g): g for node in outside if isinstance(g := self.group_of[node.name], Group)}
        saved = itemsize(producer.out.dtype) * (1 + 1 / max(1, len(groups)))
        again = evaluations(producer, found) / max(1, len(found))
        work = gpu_instructions(producer.body) * again / GPU_INSTRUCTIONS_PER_BYTE
        most = saved * HELD - work * EXPOSED
        return all(self._bytes(producer, group) <= most for group in groups.values())

    def _bytes(self, producer: Pointwise, group: Group) -> float:
        """Return what a kernel reads more per element, and what is stored for that."""
        there = set[str]().union(*(reads(node) for node in group.loops.nodes))
        total = 0.0
        for load, share in shares(producer):
            if load.buffer in there:
                continue
            total += bytes_read(producer, load, share)
            if load.buffer in self.nodes and not self._outside(load.buffer):
                total += itemsize(load.dtype) * share
        return total
