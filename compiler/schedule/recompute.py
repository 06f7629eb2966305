"""fuse.recompute: compute a producer in all of its consumers if a GPU then reads and stores less.

The exponentials of a softmax are read by their sum and by the result. If rows are divided among the
programs of a GPU, or the result is padded, rolled or in another order than the operand, the sum and
the result have kernels of their own. Both compute the exponentials, which are not stored.

A sum over the columns of a softmax cannot be in the kernel of its rows. It computes the softmax
again from the operand and from the maximum and sum of each row, which are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import arithmetic, itemsize
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Node,
    Pointwise,
    Scan,
    memory_of,
    reads,
    written,
)
from tcdebug.compiler.schedule.align import align, loops_of
from tcdebug.compiler.schedule.fusion import legal
from tcdebug.compiler.schedule.inline import (
    LARGEST_BODY,
    inlined,
    inlined_where,
    made_elsewhere,
    plain,
    reads_indirectly,
    size_after,
)
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES

UNIT = "fuse.recompute"
WHOLE = 0.5
"""A load of more elements than this, for each element of the producer, is no value of a row."""
SHARED, SMALL = 0.5, 1 << 16
"""The time of a load from the cache of all multiprocessors; one has its own for so few bytes."""
WORK_PER_BYTE = 8
"""The operations that a GPU computes while it reads or stores a byte."""
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
    if all(node.out is None or node.out.device.type not in DEVICES for node in graph.nodes):
        return graph
    choice = Recomputation(graph, divided)
    return inlined_where(graph, gate, UNIT, choice.refuses, expanded=choice.expanded)


class Recomputation:
    """Decides which producers of a graph are computed again by their consumers."""

    def __init__(self, graph: Graph, divided: Mapping[str, str] | None) -> None:
        self.buffers = graph.buffers()
        self.divided = divided
        self.combined = frozenset(divided.values() if divided else ())
        self.nodes = {node.name: node for node in graph.nodes}
        self.stored = made_elsewhere(graph)
        """What is known to be in memory. `refuses` adds what it leaves there."""
        self.memory = memory_of(graph.nodes)
        self.updated = {self._memory(name) for node in graph.nodes for name in written(node)}

    def _memory(self, name: str) -> str:
        return self.memory.get(name, name)

    def expanded(self, producer: Pointwise) -> Pointwise:
        """Return a producer that computes its operands from what is in memory, if it can."""
        if self.divided is None or not self.combined.isdisjoint(reads(producer)):
            return producer
        full = producer
        while missing := self._missing(full):
            operand = self.nodes[missing[0].buffer]
            if not isinstance(operand, Pointwise) or not plain(operand):
                return producer
            if size_after(full.body, operand) > LARGEST_BODY:
                return producer
            if any(self._memory(name) in self.updated for name in reads(operand)):
                return producer  # by then, it may have another value
            full = replace(full, body=inlined(full.body, operand))
        return full

    def _missing(self, producer: Pointwise) -> list[Load]:
        """Return the loads of elements that a kernel may compute without storing them."""
        return [load for load in _whole(producer) if load.buffer not in self.stored]

    def refuses(self, producer: Pointwise, consumers: Sequence[Node], in_memory: bool) -> str:
        """Return why a producer is not computed again; empty if it is. Producers come in order."""
        if in_memory:
            self.stored.add(producer.name)
            return "it is stored anyway"
        rows, missing = self._rows(producer), self._missing(producer)
        if missing and self.combined.isdisjoint(reads(producer)):
            return "the kernel of its operands may compute it"
        apart = any(self._apart(producer, consumer, rows) for consumer in consumers)
        if not apart and not _turns(producer, _whole(producer), self.buffers):
            return "its consumers may be one kernel"
        if reason := too_expensive(producer, consumers, in_rows=bool(rows)):
            self.stored.add(producer.name)
            return reason
        return ""

    def _rows(self, producer: Pointwise) -> set[str]:
        """Return the values of rows that a producer reads, and that the kernel of rows computes."""
        found = {load.buffer for load, share in _loads(producer) if share <= WHOLE}
        return found - self.stored - self.combined

    def _apart(self, producer: Pointwise, consumer: Node, rows: set[str]) -> bool:
        """Return whether a consumer cannot be in the kernel that computes a producer."""
        if isinstance(consumer, Extern) or not _share_a_kernel(producer, consumer, self.buffers):
            return True
        if not rows:
            return consumer.name in (self.divided or {})
        body, over = inlined(consumer.body, producer), {*consumer.over}
        return any(load.buffer in rows and over & _axes(load) for load in loads(body))


def _whole(producer: Pointwise) -> list[Load]:
    """Return the loads of elements of which a producer reads many."""
    return [load for load, share in _loads(producer) if share > WHOLE]


def _loads(producer: Pointwise) -> list[tuple[Load, float]]:
    """Return each load once, and how many elements it reads for each element of the producer."""
    found = {load.key: load for load in loads(producer.body) if load.index}
    elements = max(1, estimate(producer.out.numel))
    sizes = (estimate(product(a.size for a in _axes(load))) for load in found.values())
    return [(load, size / elements) for load, size in zip(found.values(), sizes, strict=True)]


def _cost(producer: Pointwise, load: Load, share: float) -> float:
    """Return how long a load takes for each element of a producer, relative to one from memory.

    What rows share, such as the means of columns, is read for each element, from a cache. If it is
    small, that is the cache of a multiprocessor.
    """
    along = nearest(producer.out.address(producer.index), producer.axes)
    large = share * estimate(producer.out.numel) * itemsize(load.dtype) > SMALL
    return max(share, SHARED) if large and along in _axes(load) else share


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


def _axes(load: Load) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(index.axes for index in load.index))


def too_expensive(producer: Pointwise, consumers: Sequence[Node], *, in_rows: bool) -> str:
    """Return why computing a producer in all consumers takes longer; empty if it does not.

    The kernel that stores it may be that of a consumer, unless it is that of its rows.
    """
    elements = estimate(producer.out.numel)
    for consumer in consumers:
        if isinstance(consumer, Extern):
            return "a call reads it"
        points = estimate(product(a.size for a in (*consumer.axes, *consumer.over)))
        places = {e.key for e in loads(consumer.body) if e.buffer == producer.name}
        if points * len(places) > elements * AGAIN:
            return "a consumer reads an element several times"
    if reads_indirectly(producer.body):
        return "it reads through an indirect index"
    count, size = len(consumers), itemsize(producer.out.dtype)
    most = size * (AGAIN + 1 / (count if in_rows else max(1, count - 1)))
    read = sum(
        itemsize(load.dtype) * _cost(producer, load, share) for load, share in _loads(producer)
    )
    if read > most:
        return f"it reads {read:.1f} bytes per element"
    work = arithmetic(producer.body)
    return f"it has {work} operations" if work > most * WORK_PER_BYTE else ""
