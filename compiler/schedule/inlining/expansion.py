"""What a consumer must compute itself to compute a producer again: its operands, from memory."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import Graph, Node, Pointwise, memory_of, reads, written
from tcdebug.compiler.schedule.inlining.inline import LARGEST_BODY, inlined, plain, size_after

WHOLE = 0.5
"""A load of more elements than this, for each element of the producer, is no value of a row."""
SHARED, SMALL = 0.5, 1 << 16
"""The time of a load from the cache of all multiprocessors; one has its own for so few bytes."""


class Expansion:
    """Expands the bodies of producers of a graph until they read what is `stored`."""

    def __init__(self, graph: Graph, stored: set[str]) -> None:
        self.nodes: Mapping[str, Node] = {node.name: node for node in graph.nodes}
        self.stored = stored
        self._memory = memory_of(graph.nodes)
        self._updated = {self._root(name) for node in graph.nodes for name in written(node)}

    def _root(self, name: str) -> str:
        return self._memory.get(name, name)

    def missing(self, producer: Pointwise) -> list[Load]:
        """Return the loads of elements that a kernel may compute without storing them."""
        return [load for load in element_loads(producer) if load.buffer not in self.stored]

    def expanded(self, producer: Pointwise) -> Pointwise:
        """Return a producer that computes its operands from what is in memory, if it can."""
        full = producer
        while missing := self.missing(full):
            operand = self.nodes[missing[0].buffer]
            if not isinstance(operand, Pointwise) or not plain(operand):
                return producer
            if size_after(full.body, operand) > LARGEST_BODY:
                return producer
            if any(self._root(name) in self._updated for name in reads(operand)):
                return producer  # by then, it may have another value
            full = replace(full, body=inlined(full.body, operand))
        return full


def runs_on(graph: Graph, devices: Container[str]) -> bool:
    """Return whether any node of a graph has its result on devices of these types."""
    return any(node.out is not None and node.out.device.type in devices for node in graph.nodes)


def element_loads(producer: Pointwise) -> list[Load]:
    """Return the loads of elements of which a producer reads many."""
    return [load for load, share in shares(producer) if share > WHOLE]


def shares(producer: Pointwise) -> list[tuple[Load, float]]:
    """Return each load once, and how many elements it reads for each element of the producer."""
    found = {load.key: load for load in loads(producer.body) if load.index}
    elements = max(1, estimate(producer.out.numel))
    sizes = (estimate(product(a.size for a in axes_of(load))) for load in found.values())
    return [(load, size / elements) for load, size in zip(found.values(), sizes, strict=True)]


def bytes_read(producer: Pointwise, load: Load, share: float) -> float:
    """Return the bytes per element of a producer that take as long to read as a load does.

    What rows share, such as the means of columns, is read for each element, from a cache. If it is
    small, that is the cache of a multiprocessor.
    """
    along = nearest(producer.out.address(producer.index), producer.axes)
    large = share * estimate(producer.out.numel) * itemsize(load.dtype) > SMALL
    cached = large and along in axes_of(load)
    return itemsize(load.dtype) * (max(share, SHARED) if cached else share)


def axes_of(load: Load) -> frozenset[Axis]:
    """Return the axes along which a load reads different elements."""
    return frozenset[Axis]().union(*(index.axes for index in load.index))
