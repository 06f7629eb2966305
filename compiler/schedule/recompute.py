"""fuse.recompute: compute a producer in all of its consumers if a GPU then reads and stores less.

The exponentials of a softmax are read by their sum and by the result. If rows are divided among the
programs of a GPU, or the result is padded, rolled or in another order than the operand, the sum and
the result have kernels of their own. Both compute the exponentials, which are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import arithmetic, itemsize
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import Buffer, Extern, Graph, Node, Pointwise, Scan, reads
from tcdebug.compiler.schedule.align import align, loops_of
from tcdebug.compiler.schedule.fusion import legal
from tcdebug.compiler.schedule.inline import indirect, inlined_where
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES

UNIT = "fuse.recompute"
WHOLE = 0.5
"""A load of more elements than this, for each element of the producer, is no value of a row."""
MOST_WORK = 32
"""The most operations that take no longer than a GPU reads an element."""
AGAIN = 1.25
"""The most elements that a consumer reads, and bytes that it reads, relative to the producer's.

The last piece of a row may have too many, and a row has values that all of its elements read.
"""


def recompute_producers(graph: Graph, gate: Gate, divided: Mapping[str, str]) -> Graph:
    """Return the graph with some producers computed in all of their consumers.

    These are read by a divided reduction, or by a loop that cannot compute them element by element,
    or are stored in another order than they are read. If they read no result of a divided
    reduction, their operands must be in memory in any case: otherwise the kernel of the operands
    may compute them. `divided` maps reductions of pieces to those that combine their results.
    """
    if all(node.out is None or node.out.device.type not in DEVICES for node in graph.nodes):
        return graph
    combined, buffers = frozenset(divided.values()), graph.buffers()
    stored = {node.name for node in graph.nodes if isinstance(node, Extern)}
    stored |= {given.name for given in graph.inputs} | graph.constants.keys()

    def refuses(producer: Pointwise, consumers: Sequence[Node], in_memory: bool) -> str:
        if in_memory:
            return "it is stored anyway"
        if reason := too_expensive(producer, consumers):
            return reason
        whole = [load for load, share in _loads(producer) if share > WHOLE]
        if combined.isdisjoint(reads(producer)) and any(e.buffer not in stored for e in whole):
            return "the kernel of its operands may compute it"
        apart = (c.name in divided or not _share_a_kernel(producer, c, buffers) for c in consumers)
        if any(apart) or _turns(producer, whole, buffers):
            return ""
        return "its consumers may be one kernel"

    return inlined_where(graph, gate, UNIT, refuses)


def _loads(producer: Pointwise) -> list[tuple[Load, float]]:
    """Return each load once, and how many elements it reads for each element of the producer."""
    found = {load.key: load for load in loads(producer.body) if load.index}
    elements = max(1, estimate(producer.out.numel))
    sizes = (estimate(product(a.size for a in _axes(load))) for load in found.values())
    return [(load, size / elements) for load, size in zip(found.values(), sizes, strict=True)]


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


def too_expensive(producer: Pointwise, consumers: Sequence[Node]) -> str:
    """Return why computing a producer in all consumers takes longer; empty if it does not."""
    elements = estimate(producer.out.numel)
    for consumer in consumers:
        if isinstance(consumer, Extern):
            return "a call reads it"
        points = estimate(product(a.size for a in (*consumer.axes, *consumer.over)))
        places = {e.key for e in loads(consumer.body) if e.buffer == producer.name}
        if points * len(places) > elements * AGAIN:
            return "a consumer reads an element several times"
    if indirect(producer.body):
        return "it has an indirect index"
    work = arithmetic(producer.body)
    if work > MOST_WORK:
        return f"it has {work} operations"
    read = sum(itemsize(load.dtype) * share for load, share in _loads(producer))
    many = read > itemsize(producer.out.dtype) * AGAIN
    return f"it reads {read:.1f} bytes per element" if many else ""
