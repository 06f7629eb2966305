"""Decides which nodes run in one loop nest. Each merge asks the gate.

fuse.vertical merges a producer and its consumer, fuse.reduction the same if one of them reduces,
and fuse.horizontal neighbours that read the same memory. Groups are merged in pairs, the pair that
saves the most memory traffic first, unless the merge would make a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import count

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import LONGEST_TRANSPOSED_ROW, arithmetic, bytes_of
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Pointwise,
    Reduction,
    Scan,
    Scatter,
    memory_of,
    output_refs,
    reads,
    written,
)
from tcdebug.compiler.schedule.align import Loops, align, loops_of, sweep_numbers, sweeps
from tcdebug.compiler.schedule.dependencies import Dependencies
from tcdebug.compiler.schedule.scans import held_whole, may_scan_together, scans

LARGEST_KERNEL = 48
"""The most nodes in a kernel. More make the C++ compiler slow and spill registers."""
LARGEST_WORK = 1500
"""The most arithmetic in a C++ kernel of several groups. g++ takes about a second for as much in
float16, and the time grows faster than the work."""
ROW_IN_CACHE = 1 << 16
"""The longest single row, in elements, that a kernel may sweep several times."""

LONGEST_TURNED_ROW = 64
"""The longest row that a program on a GPU can read along and store across, or the reverse."""
SHORTEST_RUN = 8
"""The fewest contiguous elements that are worth a kernel of their own."""


@dataclass
class Group:
    """Nodes that will run together. `number` identifies the group."""

    loops: Loops
    number: int
    work: int

    @property
    def names(self) -> set[str]:
        """The buffers the group fills."""
        return {n.name for n in self.loops.nodes}

    @property
    def head(self) -> str:
        """The first node, which names the group in decisions."""
        return self.loops.nodes[0].name


class Fusion:
    """Groups the nodes of a graph by merging pairs of groups.

    The values in `in_memory` are read by other kernels than those that compute them.
    """

    def __init__(self, graph: Graph, gate: Gate, in_memory: frozenset[str] = frozenset()) -> None:
        self.graph = graph
        self.gate = gate
        self.in_memory = in_memory
        self.buffers = graph.buffers()
        self.memory = memory_of(graph.nodes)
        self.readers = readers_of(graph)
        self.dependencies = Dependencies(graph)
        self.group_of: dict[str, Group | Extern] = {}
        self._numbers = count()
        for node in graph.nodes:
            self.group_of[node.name] = (
                node if isinstance(node, Extern) else self._group(loops_of(node), work_of([node]))
            )

    def _group(self, loops: Loops, work: int) -> Group:
        return Group(loops, next(self._numbers), work)

    def run(self) -> None:
        """Merge until no pair is left."""
        refused: set[tuple[int, int]] = set()
        changed = True
        while changed:
            changed = False
            for _, first, second in sorted(self._pairs(), key=lambda p: (-p[0], p[1], p[2])):
                a, b = self.group_of[first], self.group_of[second]
                if a is b or isinstance(a, Extern) or isinstance(b, Extern):
                    continue
                if (a.number, b.number) in refused:
                    continue
                if self._merge(a, b):
                    changed = True
                else:
                    refused.add((a.number, b.number))

    def _pairs(self) -> Iterator[tuple[int, str, str]]:
        """(bytes saved, earlier node, later node) for nodes that access a common buffer."""
        touching: dict[str, list[LoopNode]] = {}
        for node in self.graph.nodes:
            if isinstance(node, Extern):
                continue
            touching.setdefault(node.name, []).append(node)
            for name in sorted(reads(node) | set(written(node))):
                touching.setdefault(name, []).append(node)
        for name, nodes in touching.items():
            buffer = self.buffers.get(name)
            if buffer is None:
                continue
            for k, first in enumerate(nodes):
                for second in nodes[k + 1 : k + 9]:
                    yield bytes_of(buffer), first.name, second.name

    def _merge(self, a: Group, b: Group) -> bool:
        if self.dependencies.reaches(self._key(b), self._key(a)):
            a, b = b, a
        work = a.work + b.work
        if too_large(a.loops.nodes, b.loops.nodes, work):
            return False
        if self.dependencies.blocked(self._key(a), self._key(b)):
            return False
        if any(self.in_memory & a.names & reads(n) for n in b.loops.nodes):
            return False
        if not may_scan_together(a.loops, b.loops, linked=linked(a, b)):
            return False
        if any(isinstance(n, Scatter) for n in (*a.loops.nodes, *b.loops.nodes)):
            return False  # the points of a scatter run one after the other
        for merged in align(a.loops, b.loops):
            ordered = self._in_order(merged)
            if not legal(ordered, self.memory, self.buffers) or not pays(ordered):
                continue
            if scans(ordered) and sweeps(ordered) > 1 and not held_whole(ordered):
                continue
            if not linked(a, b) and not meets(ordered, a.names):
                continue
            if self._crosses(ordered) and not self._crosses(a.loops) and not self._crosses(b.loops):
                continue
            if not self.gate.allows(self._unit(a, b), f"{a.head}+{b.head}"):
                return False
            self.join(a, b, ordered)
            return True
        return False

    def join(self, first: Group, second: Group, loops: Loops) -> None:
        """Replace two groups by one with these loops."""
        group = self._group(self._in_order(loops), first.work + second.work)
        self.dependencies.merge(self._key(first), self._key(second))
        for name in group.names:
            self.group_of[name] = group

    def may_precede(self, first: Group, second: Group) -> bool:
        """Whether the groups may run as one in which nothing of the first reads the second."""
        return not self.dependencies.blocked(self._key(first), self._key(second))

    def groups(self) -> list[Group]:
        """Return the groups of loop nodes, in an order in which they can run."""
        return [group for group in self.ordered() if isinstance(group, Group)]

    def _crosses(self, loops: Loops) -> bool:
        return crosses(loops, self.buffers, self.readers)

    def _key(self, group: Group) -> int:
        return self.dependencies.key_of(group.head)

    def _in_order(self, loops: Loops) -> Loops:
        position = self.dependencies.position
        nodes = tuple(sorted(loops.nodes, key=lambda n: position[n.name]))
        return Loops(loops.outer, loops.inner, nodes)

    def _unit(self, a: Group, b: Group) -> str:
        if not linked(a, b):
            return "fuse.horizontal"
        return "fuse.reduction" if a.loops.inner or b.loops.inner else "fuse.vertical"

    def ordered(self) -> list[Group | Extern]:
        """Return the groups and calls in an order in which they can run."""
        seen: set[int] = set()
        ordered: list[Group | Extern] = []
        for name in self.dependencies.order():
            group = self.group_of[name]
            if id(group) not in seen:
                seen.add(id(group))
                ordered.append(group)
        return ordered


def too_large(first: Sequence[LoopNode], second: Sequence[LoopNode], work: int) -> str:
    """Return why a kernel of two groups would be too large; empty if it would not be."""
    count = len(first) + len(second)
    if count > LARGEST_KERNEL:
        return f"they have {count} nodes together, and a kernel has at most {LARGEST_KERNEL}"
    if work > LARGEST_WORK:
        return f"they have {work} operations together, and a kernel has at most {LARGEST_WORK}"
    return ""


def work_of(nodes: Iterable[LoopNode]) -> int:
    """Return the arithmetic of the nodes that are written in C++."""
    return sum(arithmetic(n.body) for n in nodes if n.out.device.type == "cpu")


def linked(first: Group, second: Group) -> bool:
    """Return whether the second group reads a buffer that the first fills."""
    return any(first.names & reads(n) for n in second.loops.nodes)


def meets(loops: Loops, names: set[str]) -> bool:
    """Whether the nodes of these names and the other nodes load a common element at each point.

    Matters only on a GPU, where a program gains nothing from loading other elements of the same
    buffer. Always true on a CPU.
    """
    if any(n.out.device.type == "cpu" for n in loops.nodes):
        return True
    touched: tuple[set[str], set[str]] = set(), set()
    for node in loops.nodes:
        touched[node.name in names].update(load.key for load in loads(node.body) if load.index)
    return not touched[0].isdisjoint(touched[1])


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


def pays(loops: Loops) -> bool:
    """Return whether fusion pays.

    Several sweeps over one long row are no faster than several kernels.
    """
    if not loops.inner or estimate(product(a.size for a in loops.outer)) > 1:
        return True
    return sweeps(loops) == 1 or estimate(product(a.size for a in loops.inner)) <= ROW_IN_CACHE


def readers_of(graph: Graph) -> dict[str, set[str]]:
    """Value -> the nodes that read it. An output of the graph has a reader without a name."""
    found = {name: {""} for name in output_refs(graph)}
    for node in graph.nodes:
        for name in reads(node):
            found.setdefault(name, set()).add(node.name)
    return found


def crosses(loops: Loops, buffers: Mapping[str, Buffer], readers: Mapping[str, set[str]]) -> bool:
    """Return whether a kernel that stores reads or stores along several axes.

    Some of the loads or stores of a vector would touch a cache line for each element. On a GPU, one
    axis along which it both reads and stores is enough. A kernel
    without reductions transposes blocks of what it reads, and one on a CPU that reduces short rows
    transposes those (codegen/cpp/transposed_loads.py). On a GPU, rows may lie along memory.
    """
    on_gpu = any(n.out.device.type != "cpu" for n in loops.nodes)
    if not loops.inner or (on_gpu and any(isinstance(n, Scan) for n in loops.nodes)):
        return False
    made = {n.name for n in loops.nodes}
    along_loads, along_stores = set[Axis](), set[Axis]()
    for node in loops.nodes:
        for load in loads(node.body):
            if load.buffer not in made:
                along_loads |= _runs_along(
                    buffers[load.buffer].address(load.index), loops, on_gpu=on_gpu
                )
        if isinstance(node, Pointwise) and not readers.get(node.name, set()) <= made:
            along_stores |= _runs_along(node.out.address(node.index), loops, on_gpu=on_gpu)
    if not along_loads or not along_stores or len(along_loads | along_stores) < 2:
        return False
    rows = estimate(product(a.size for a in loops.inner))
    if on_gpu and along_loads & along_stores:
        return False
    if on_gpu:
        return rows > LONGEST_TURNED_ROW or (along_loads | along_stores).isdisjoint(loops.inner)
    return rows > LONGEST_TRANSPOSED_ROW or not along_stores & set(loops.inner)


def _runs_along(address: Index, loops: Loops, *, on_gpu: bool) -> set[Axis]:
    """The long axis along which an access to all points of some loops is contiguous.

    On a GPU, its neighbours need not be contiguous: it is the long axis with the smallest stride.
    """
    long = [a for a in loops.axes if estimate(a.size) > 1]
    if not all(a in address.axes for a in long):
        return set()
    if on_gpu:
        along = nearest(address, [a for a in long if estimate(a.size) >= SHORTEST_RUN])
        return set() if along is None else {along}
    return {a for a in long if address.coefficient(a) == 1 and estimate(a.size) >= SHORTEST_RUN}
