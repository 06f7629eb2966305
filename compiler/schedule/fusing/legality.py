"""Which nodes may share a loop nest: each value exists, and memory is intact, when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    LoopNode,
    Pointwise,
    Reduction,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, sweep_numbers


def legal(loops: Loops, memory: Mapping[str, str], buffers: Mapping[str, Buffer]) -> bool:
    """Whether every node reads other nodes of the group only at the current point of the loops.

    Then each value exists when it is read: nodes run in dependency order, and readers of a
    reduction run after its sweep. `memory` maps a value without memory of its own to the value
    whose memory it shares.
    """
    return illegal_read(loops) is None and stores_in_order(loops, memory, buffers)


def stores_in_order(loops: Loops, memory: Mapping[str, str], buffers: Mapping[str, Buffer]) -> bool:
    """Return whether every store over memory can come after all reads of the memory."""
    if overwritten_read(loops, memory, buffers) is not None:
        return False
    return not has_waiting_stores(loops, memory)


def has_waiting_stores(loops: Loops, memory: Mapping[str, str]) -> bool:
    """Return whether stores over memory would wait for each other in a cycle.

    A store must wait for all stores whose values are computed from what it overwrites, directly or
    by computing values of earlier sweeps again.
    """
    stores = [node for node in loops.nodes if written(node)]
    if not loops.inner or len(stores) < 2:
        return False
    numbers = sweep_numbers(loops)
    points = [n for n in loops.nodes if isinstance(n, Pointwise)]
    read: dict[str, set[str]] = {}
    for store in stores:
        own = numbers.get(store.name, 0)
        earlier = {n.name: n for n in points if numbers.get(n.name, own) < own}
        read[store.name] = {memory.get(name, name) for name in reads_through(store, earlier)}
    waits = {
        s.name: {n for n in read if n != s.name and not read[n].isdisjoint(written(s))}
        for s in stores
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return True
    return False


def reads_through(node: LoopNode, through: Mapping[str, LoopNode]) -> set[str]:
    """Return what a node reads, itself or through the given nodes."""
    found: set[str] = set()
    left = [node]
    while left:
        new = reads(left.pop()) - found
        found |= new
        left += [through[name] for name in new if name in through]
    return found


def overwritten_read(
    loops: Loops, memory: Mapping[str, str], buffers: Mapping[str, Buffer]
) -> tuple[LoopNode, LoopNode, Load] | None:
    """Return the first (writer, reader, load) that may read memory after the kernel overwrote it.

    A kernel may read the element that it is about to overwrite: sweeps that read it come first
    (codegen/kernels/sweeps.py). Elements are compared by their address, because a node may have
    other dimensions than the memory that it is stored over.
    """
    for place, writer in enumerate(loops.nodes):
        for target in written(writer):
            address = writer.out.address(writer.index)
            for position, reader in enumerate(loops.nodes):
                if position != place and target in written(reader):
                    return writer, reader, Load(writer.out.dtype, target, writer.index)
                for load in loads(reader.body):
                    if memory.get(load.buffer, load.buffer) != target:
                        continue
                    before = load.buffer == target and position <= place
                    own = buffers[load.buffer].address(load.index) == address
                    if not own or not (before or load.buffer == writer.name):
                        return writer, reader, load
    return None


def illegal_read(loops: Loops) -> tuple[LoopNode, LoopNode, Load] | None:
    """Return the first (producer, reader, load) that reads a node of the group at another point."""
    made: dict[str, LoopNode] = {}
    for node in loops.nodes:
        for load in loads(node.body):
            producer = made.get(load.buffer)
            if producer is None:
                continue
            if load.index != producer.index or not _visible(loops, producer, node):
                return producer, node, load
        made[node.name] = node
    return None


def _visible(loops: Loops, producer: LoopNode, reader: LoopNode) -> bool:
    """Whether a reader can see a producer: nodes over outer axes cannot read inner elements."""
    inside = not isinstance(producer, Reduction) and len(producer.filled) > len(loops.outer)
    outside = isinstance(reader, Pointwise) and len(reader.axes) == len(loops.outer)
    return not (inside and outside and loops.inner)
