"""Orders the work in a kernel: sweeps over the inner axes, and the nodes between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.expr import Load, loads


@dataclass(frozen=True)
class Segment:
    """Nodes computed together: in one sweep over the inner axes, or once per outer point."""

    sweep: bool
    nodes: tuple[FlatNode, ...]


def of_other_sweeps(kernel: FlatKernel, segment: Segment) -> Iterator[FlatNode]:
    """Yield the pointwise nodes inside other sweeps, whose values are not at hand in this one."""
    current = {n.name for n in segment.nodes}
    for node in kernel.nodes:
        if node.inside and not node.kind and node.name not in current:
            yield node


def reads_of(node: FlatNode) -> set[str]:
    """Return the values of the same kernel that a node reads directly."""
    return {load.buffer for load in loads(node.body) if _from_kernel(load)}


def _from_kernel(load: Load) -> bool:
    return not load.index


def _stores_last(nodes: tuple[FlatNode, ...], made: Mapping[str, FlatNode]) -> list[FlatNode]:
    """Return the nodes in an order in which overwriting stores come after all reads of the memory.

    Reads by nodes of earlier sweeps count too, because those may be recomputed. A store that reads
    only the element that it overwrites need not precede stores to other elements.
    """
    own = {node.name: node for node in nodes}
    earlier = {name: node for name, node in made.items() if name not in own and not node.kind}
    waits = {node.name: reads_of(node) & own.keys() for node in nodes}
    stores = [node for node in nodes if node.into]
    for node in nodes if stores else ():
        needed = {name for source in _sources(node, own) for name in reads_of(source)}
        read = [load for source in _sources(node, earlier) for load in loads(source.body)]
        for store in stores:
            dependent = node is store or store.name in needed
            if not dependent and any(_is_overwritten(load, node, store) for load in read):
                waits[store.name].add(node.name)
    ordered: list[FlatNode] = []
    left = sorted(nodes, key=lambda n: bool(n.into))
    while left:
        names = {n.name for n in left}
        ready = (n for n in left if not waits[n.name] & names)
        chosen = next(ready, None)
        assert chosen is not None, "overwriting stores wait for each other in a cycle"
        left.remove(chosen)
        ordered.append(chosen)
    return ordered


def _is_overwritten(load: Load, node: FlatNode, store: FlatNode) -> bool:
    """Return whether a store overwrites what a node reads, which may store into the same memory."""
    apart = node.into == store.into and node.address != store.address
    own_element = apart and load.index == (node.address,)
    return load.buffer == store.into and not _from_kernel(load) and not own_element


def _sources(node: FlatNode, through: Mapping[str, FlatNode]) -> list[FlatNode]:
    """Return a node and the given nodes that it is computed from."""
    found = {node.name: node}
    left = [node]
    while left:
        new = {n: through[n] for n in reads_of(left.pop()) if n in through and n not in found}
        found |= new
        left += new.values()
    return list(found.values())


def _memory_read(node: FlatNode) -> set[str]:
    return {load.buffer for load in loads(node.body) if not _from_kernel(load)}


def segments(kernel: FlatKernel) -> list[Segment]:
    """Return the segments of a kernel in order.

    A node runs in the first sweep in which all its operands are known, except that a value used
    only by later sweeps is computed in the first of those. A store that overwrites an input comes
    after all reads of the input. Sums of columns are added to in the last sweep.
    """
    nodes = [n for n in kernel.nodes if n.kind or not n.across]
    made = {n.name: n for n in nodes}
    sweep: dict[str, int] = {}
    for node in nodes:
        sweep[node.name] = max(
            (sweep[r] + made[r].reduces for r in reads_of(node) if r in made), default=0
        )
    last = max(sweep.values(), default=0)
    for node in nodes:
        if node.into and any(node.into in _memory_read(n) for n in nodes if n is not node):
            sweep[node.name] = last + (not node.inside)
    last = max((sweep[n.name] for n in nodes if n.inside), default=0)
    sweep |= {n.name: last for n in kernel.columns}
    for node in reversed(nodes):
        if node.inside and not node.kind:
            users = [sweep[n.name] for n in nodes if n.inside and node.name in reads_of(n)]
            if users:
                sweep[node.name] = max(sweep[node.name], min(users))
    result: list[Segment] = []
    for number in range(max(sweep.values(), default=0) + 1):
        for inside in (False, True):
            found = tuple(n for n in nodes if n.inside == inside and sweep[n.name] == number)
            if found:
                result.append(Segment(inside, tuple(_stores_last(found, made))))
    return result
