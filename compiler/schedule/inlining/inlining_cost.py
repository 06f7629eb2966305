"""Decides whether it pays to compute a pointwise producer inside its consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import (
    GPU_INSTRUCTIONS_PER_BYTE,
    MOST_READ_ACROSS,
    arithmetic,
    gpu_instructions,
    itemsize,
    load_count,
)
from tcdebug.compiler.ir.expr import Expr, Load, indices, indirect_atoms, loads, walk
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Node,
    Pointwise,
    Reduction,
    reads,
)
from tcdebug.compiler.ir.linear_parts import linear_parts
from tcdebug.compiler.schedule.inlining.guarded_reads import guarded_reads
from tcdebug.compiler.schedule.inlining.short_choices import apart
from tcdebug.compiler.schedule.splitting.split_across import apart_across, whole_loads
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES

CHEAP_ARITHMETIC = 4
CHEAP_LOADS = 2
CHEAP_USERS = 4
ARITHMETIC_PER_BYTE = 4
"""What a CPU computes while it stores a byte and loads it again in two loops.

The gradient of GLU computes a sigmoid, 13 operations, for each half of its result. For 1024 rows of
768, this took 0.67 of the time of a sigmoid that is stored, and 1.2 in bfloat16 (Intel Xeon).
"""
INDEX_ARITHMETIC = 16
"""The most operations of an index on a GPU that each of its consumers computes."""
JOINED = (2, 4)
"""How many neighbours, which lie along the last axis, a program on a GPU joins to one store."""
HELD = 1.25
"""What it is worth on a GPU to save a byte that would be held between kernels."""
FEW = 16
"""A consumer that reads at most one element in so many computes these itself."""


class InliningCost:
    """Decides whether producers of a graph are computed inside their consumers."""

    def __init__(self, graph: Graph) -> None:
        self._buffers = graph.buffers()
        self._accumulated = _accumulated(graph, self._buffers)

    def refuses(self, producer: Pointwise, consumers: Sequence[Node], in_memory: bool) -> str:
        """Return why computing a producer inside its consumers does not pay; empty if it pays.

        `in_memory` says whether the producer is stored in any case.
        """
        loops = [c for c in consumers if not isinstance(c, Extern)]
        if not loops:
            return "no loop reads it"
        work, read = arithmetic(producer.body), load_count(producer.body)
        if read == 0 and not producer.body.axes:
            return ""  # a constant
        if _is_index(producer):
            return ""
        cost = f"{work} operations and {read} loads"
        if in_memory:
            cheap = work <= 1 and read <= 1 and not indirect(producer.body)
            return "" if cheap else f"it is stored anyway, and {cost} cost more than a load"
        if any(apart(producer, consumer) for consumer in loops):
            return "short rows leave no vectors for a function"
        if len(loops) == 1:
            if len(whole_loads(producer)) > MOST_READ_ACROSS and _turned(producer, loops[0]):
                return f"its consumer stores in another order, across which {cost} are slow"
            if self._cheap_to_repeat(producer, loops[0], work):
                return ""
        elif any(apart_across(producer, consumer, self._buffers) for consumer in loops):
            return "it is read several times, and its operands have different neighbours"
        if reads_indirectly(producer.body):
            return "it is read several times, and reads through an indirect index"
        if work > CHEAP_ARITHMETIC or read > CHEAP_LOADS:
            return f"it is read several times, and {cost} are too much to repeat"
        return f"{len(loops)} nodes read it" if len(loops) > CHEAP_USERS else ""

    def _cheap_to_repeat(self, producer: Pointwise, consumer: LoopNode, work: int) -> bool:
        """Return whether the arithmetic that is repeated in a consumer is cheap.

        A consumer reads most elements more than once if it repeats, reflects or pads rows. On a
        CPU, the parts of a join are loops of their own, unless the loop may be that of a reduction.
        Otherwise, and on a GPU, each point computes all of them.
        """
        found, elements = (
            guarded_reads(consumer, producer.name),
            max(1, estimate(producer.out.numel)),
        )
        on_cpu = producer.out.device.type == "cpu"
        cut = (on_cpu or _is_stack(consumer)) and consumer.name not in self._accumulated
        if found.places > 1 and not (cut and found.elements <= found.domain):
            return False
        cheap, evaluated = CHEAP_ARITHMETIC, found.elements if cut else found.domain
        if cut and found.parts > 1:
            cheap = max(cheap, ARITHMETIC_PER_BYTE * itemsize(producer.out.dtype))
        more = max(0.0, evaluated / elements - 1)
        if more and reads_indirectly(producer.body):
            return False
        if producer.out.device.type in DEVICES:
            again = max(0.0, found.elements / elements - 1)
            return _cheap_on_gpu(producer, consumer, more, again)
        return more * (work + 1) <= cheap


def _is_stack(node: LoopNode) -> bool:
    """Return whether a GPU computes each operand of a join of functions once (`codegen.unroll`)."""
    return (
        type(node) is Pointwise and node.axes[-1:] != () and node.axes[-1].size.constant in JOINED
    )


def _cheap_on_gpu(producer: Pointwise, consumer: LoopNode, more: float, again: float) -> bool:
    """Return whether a GPU stores a producer and loads it for longer than its consumer computes it.

    For each element of the producer, the consumer computes it `more` times than once, and reads its
    operands `again` so many times; otherwise its kernel may have them anyway. It computes while it
    reads them and stores its own elements.
    """
    read = sum(itemsize(load.dtype) for load in whole_loads(producer))
    saved = HELD * 2 * itemsize(producer.out.dtype) + (0 if again else read)
    work = (1 + more) * gpu_instructions(producer.body) / GPU_INSTRUCTIONS_PER_BYTE
    moved = (1 + again) * read
    if isinstance(consumer, Pointwise):
        moved += (1 + more) * itemsize(consumer.out.dtype)
    return max(0.0, work - moved) + again * read <= saved


def _accumulated(graph: Graph, buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """Return the nodes whose loop may also be that of a node that is not cut.

    This is a scan, a scatter, or a reduction of anything but rows. It reads them, directly or
    through other loops without results of their own.
    """
    found = set[str]()
    for node in reversed(graph.nodes):
        if isinstance(node, Extern):
            continue
        plain = type(node) is Pointwise or _of_rows(node, buffers)
        if not plain or node.name in found:
            found |= reads(node) | {node.name}
    return frozenset(found)


def _of_rows(node: LoopNode, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a node reduces one axis, along which the elements it reads are neighbours."""
    if not isinstance(node, Reduction) or len(node.reduced) != 1:
        return False
    axes = (*node.axes, *node.reduced)
    read = [e for e in loads(node.body) if e.buffer in buffers and e.index]
    return all(nearest(buffers[e.buffer].address(e.index), axes) in node.reduced for e in read)


def reads_few(producer: Pointwise, consumer: Node) -> bool:
    """Return whether a consumer reads few elements of a producer, such as one of each row."""
    if isinstance(consumer, Extern):
        return False
    return guarded_reads(consumer, producer.name).elements * FEW <= estimate(producer.out.numel)


def _is_index(producer: Pointwise) -> bool:
    """Whether a producer is cheap as an index.

    On a CPU it is linear on parts of its axis, each of which gets a loop. On a GPU it is computed
    from its axis alone; what reads another tensor there can then be computed in its consumers.
    """
    if len(producer.axes) != 1:
        return False
    if producer.out.device.type == "cpu":
        return linear_parts(producer.body, producer.axes[0]) is not None
    whole = not producer.out.dtype.is_floating_point and not load_count(producer.body)
    return whole and arithmetic(producer.body) <= INDEX_ARITHMETIC


def indirect(expr: Expr) -> bool:
    """Return whether an expression has an indirect index."""
    return any(indirect_atoms(i) for e in walk(expr) for i in indices(e))


def reads_indirectly(expr: Expr) -> bool:
    """Return whether an expression has an indirect index that is read from memory."""
    atoms = (a for e in walk(expr) for i in indices(e) for a in indirect_atoms(i))
    return any(isinstance(e, Load) for atom in atoms for e in walk(atom.expr))


def _turned(producer: Pointwise, consumer: LoopNode) -> bool:
    """Return whether a consumer on a CPU stores neighbours that the producer has far apart."""
    if producer.out.device.type != "cpu" or not isinstance(consumer, Pointwise):
        return False
    stored = nearest(consumer.out.address(consumer.index), consumer.axes)
    return any(
        nearest(producer.out.address(load.index), consumer.axes) != stored
        for load in loads(consumer.body)
        if load.buffer == producer.name
    )
