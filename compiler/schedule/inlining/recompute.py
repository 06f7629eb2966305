"""fuse.recompute: compute a producer in all of its consumers if a GPU then reads and stores less.

The exponentials of a softmax are read by their sum and by the result. If rows are divided among the
programs of a GPU, or the result is padded, rolled or in another order than the operand, the sum and
the result have kernels of their own. Both compute the exponentials, which are not stored.

A sum over the columns of a softmax cannot be in the kernel of its rows. It computes the softmax
again from the operand and from the maximum and sum of each row, which are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import GPU_INSTRUCTIONS_PER_BYTE, gpu_instructions, itemsize
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Node,
    Pointwise,
    Scan,
    reads,
)
from tcdebug.compiler.schedule.fusing.align import align, loops_of
from tcdebug.compiler.schedule.fusing.legality import legal
from tcdebug.compiler.schedule.inlining.expansion import (
    WHOLE,
    Expansion,
    axes_of,
    bytes_read,
    element_loads,
    runs_on,
    shares,
)
from tcdebug.compiler.schedule.inlining.guarded_reads import Reads, guarded_reads
from tcdebug.compiler.schedule.inlining.inline import (
    inlined,
    inlined_where,
    made_elsewhere,
)
from tcdebug.compiler.schedule.inlining.inlining_cost import reads_indirectly
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES

UNIT = "fuse.recompute"
AGAIN = 1.25
"""The most elements that a consumer reads, relative to the producer's.

The last piece of a row may have too many, and a row has values that all of its elements read.
"""


def recompute_producers(
    graph: Graph, gate: Gate, divided: Mapping[str, str] | None = None
) -> Graph:
    """Return the graph with some producers computed in all of their consumers.

    These are read by a divided reduction, or by a loop that cannot compute them element by element,
    or are stored in another order than they are read. `divided` maps reductions of pieces to those
    that combine their results. Before reductions are divided, and if a producer reads no result of
    a divided one, its operands must be in memory: otherwise their kernel may compute it. Afterwards
    consumers also compute operands, if the kernel of these cannot compute the consumer.
    """
    if not runs_on(graph, DEVICES):
        return graph
    choice = Recomputation(graph, divided)
    return inlined_where(graph, gate, UNIT, choice.refuses, expanded=choice.expanded)


class Recomputation:
    """Decides which producers of a graph are computed again by their consumers."""

    def __init__(self, graph: Graph, divided: Mapping[str, str] | None) -> None:
        self.buffers = graph.buffers()
        self.divided = divided
        self.combined = frozenset(divided.values() if divided else ())
        self.expansion = Expansion(graph, made_elsewhere(graph))
        """What is known to be in memory. `refuses` adds what it leaves there."""

    def expanded(self, producer: Pointwise) -> Pointwise:
        """Return a producer that computes its operands from what is in memory, if it can."""
        if self.divided is None or not self.combined.isdisjoint(reads(producer)):
            return producer
        return self.expansion.expanded(producer)

    def refuses(self, producer: Pointwise, consumers: Sequence[Node], in_memory: bool) -> str:
        """Return why a producer is not computed again; empty if it is. Producers come in order."""
        if in_memory:
            self.expansion.stored.add(producer.name)
            return "it is stored anyway"
        rows, missing = self._rows(producer), self.expansion.missing(producer)
        if missing and self.combined.isdisjoint(reads(producer)):
            return "the kernel of its operands may compute it"
        apart = any(self._apart(producer, consumer, rows) for consumer in consumers)
        if not apart and not _turns(producer, element_loads(producer), self.buffers):
            return "its consumers may be one kernel"
        if reason := too_expensive(producer, consumers, in_rows=bool(rows)):
            self.expansion.stored.add(producer.name)
            return reason
        return ""

    def _rows(self, producer: Pointwise) -> set[str]:
        """Return the values of rows that a producer reads, and that the kernel of rows computes."""
        found = {load.buffer for load, share in shares(producer) if share <= WHOLE}
        return found - self.expansion.stored - self.combined

    def _apart(self, producer: Pointwise, consumer: Node, rows: set[str]) -> bool:
        """Return whether a consumer cannot be in the kernel that computes a producer."""
        if isinstance(consumer, Extern) or not _share_a_kernel(producer, consumer, self.buffers):
            return True
        if not rows:
            return consumer.name in (self.divided or {})
        body, over = inlined(consumer.body, producer), {*consumer.over}
        return any(load.buffer in rows and over & axes_of(load) for load in loads(body))


def _turns(producer: Pointwise, whole: Sequence[Load], buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a producer on a GPU stores neighbours that its operands have far apart."""
    if producer.out.device.type not in DEVICES:
        return False
    stored = nearest(producer.out.address(producer.index), producer.axes)
    return any(nearest(buffers[e.buffer].address(e.index), producer.axes) != stored for e in whole)


def _share_a_kernel(producer: Pointwise, consumer: Node, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether one kernel can compute both: the consumer reads each element where it is.

    Scans count as if it could: one that also reads values of rows may become three kernels.
    """
    if isinstance(consumer, Extern | Scan) or producer.out.device.type not in DEVICES:
        return True
    merged = align(loops_of(producer), loops_of(consumer))
    return any(legal(loops, {}, buffers) for loops in merged)


def too_expensive(producer: Pointwise, consumers: Sequence[Node], *, in_rows: bool) -> str:
    """Return why computing a producer in all consumers takes longer; empty if it does not.

    The kernel that stores it may be that of a consumer, unless it is that of its rows.
    """
    found = reads_by(producer, consumers)
    if reason := unfit(producer, consumers, found):
        return reason
    count, size = sum(f.parts for f in found), itemsize(producer.out.dtype)
    others = count if in_rows else max(1, count - 1)
    most = size * (AGAIN + 1 / others)
    read = sum(bytes_read(producer, load, share) for load, share in shares(producer))
    if read > most:
        return f"it reads {read:.1f} bytes per element"
    again = evaluations(producer, found) - (0 if in_rows else 1)
    work = gpu_instructions(producer.body) * again / others
    much = work > most * GPU_INSTRUCTIONS_PER_BYTE
    return f"it has {work:.0f} instructions for each other consumer" if much else ""


def reads_by(producer: Pointwise, consumers: Sequence[Node]) -> list[Reads]:
    """Return how each loop among the consumers reads a producer."""
    return [guarded_reads(c, producer.name) for c in consumers if not isinstance(c, Extern)]


def evaluations(producer: Pointwise, found: Sequence[Reads]) -> float:
    """Return how often its consumers together compute an element of a producer, on average.

    A point computes what all guards of a node choose from.
    """
    return sum(f.domain * f.places for f in found) / max(1, estimate(producer.out.numel))


def unfit(producer: Pointwise, consumers: Sequence[Node], found: Sequence[Reads]) -> str:
    """Return why no number of operations is few enough for a producer; empty if one may be."""
    if any(isinstance(consumer, Extern) for consumer in consumers):
        return "a call reads it"
    elements = estimate(producer.out.numel)
    if any(f.elements > elements * AGAIN * f.parts for f in found):
        return "a consumer reads an element several times"
    return "it reads through an indirect index" if reads_indirectly(producer.body) else ""
