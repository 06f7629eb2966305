"""Decides which nodes run in one loop nest. Each merge asks the gate.

fuse.vertical merges a producer and its consumer, fuse.reduction the same if one of them reduces,
and fuse.horizontal neighbours that read the same memory. Groups are merged in pairs, the pair that
saves the most memory traffic first, unless the merge would make a cycle. What several reductions
could compute or read joins the one with which it saves the most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.graph import (
    Extern,
    Graph,
    LoopNode,
    memory_of,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, align, loops_of, sweeps
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies
from tcdebug.compiler.schedule.fusing.legality import legal
from tcdebug.compiler.schedule.fusing.profit import (
    crosses,
    meets,
    pays,
    readers_of,
    saved_bytes,
    too_large,
    work_of,
)
from tcdebug.compiler.schedule.fusing.scans import held_whole, may_scan_together, scans
from tcdebug.compiler.schedule.fusing.scatters import may_scatter_together


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


@dataclass(frozen=True)
class Merge:
    """Two nodes that access the same buffer, the earlier one first."""

    saved: int
    """The bytes of the buffer, which one kernel of both reads or stores once less."""
    reduces: bool
    """Whether both are reductions."""
    first: str
    second: str


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
        self._pairs = sorted(set(self._touching()), key=self._rank)
        self._partners: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
        for pair in self._pairs:
            self._partners[pair.first].add(pair.second)
            self._partners[pair.second].add(pair.first)
        for node in graph.nodes:
            self.group_of[node.name] = (
                node if isinstance(node, Extern) else self._group(loops_of(node), work_of([node]))
            )

    def _group(self, loops: Loops, work: int) -> Group:
        return Group(loops, next(self._numbers), work)

    def run(self) -> None:
        """Merge until no pair is left, from the pairs that save the most bytes, in their order."""
        refused: set[tuple[int, int]] = set()
        merged = True
        while merged:
            waiting: dict[str, set[Merge]] = {}
            merged = any([self._take(pair, refused, waiting) for pair in self._pairs])

    def _take(
        self, pair: Merge, refused: set[tuple[int, int]], waiting: dict[str, set[Merge]]
    ) -> bool:
        """Merge the groups of a pair, then those of pairs that were waiting for that.

        A pair waits if other groups lie between, and if there is only one, that is merged first. A
        value often has more in common with the kernel of its operands, which was not complete, than
        with its readers.
        """
        pairs, merged = [pair], False
        while pairs:
            pair = pairs.pop(0)
            a, b = self.group_of[pair.first], self.group_of[pair.second]
            if a is b or isinstance(a, Extern) or isinstance(b, Extern):
                continue
            if (a.number, b.number) in refused:
                continue
            between = self._between(a, b)
            other = between[0] if between else b
            if len(between) < 2 and isinstance(other, Group) and self._merge_best(a, other):
                merged = True
                again = {p for name in a.names | other.names for p in waiting.pop(name, ())}
                pairs = sorted({pair, *again, *pairs}, key=self._rank)
                continue
            refused.add((a.number, b.number))
            if between:
                waiting.setdefault(pair.first, set()).add(pair)
                waiting.setdefault(pair.second, set()).add(pair)
        return merged

    def _merge_best(self, a: Group, b: Group) -> bool:
        """Merge two groups; a group without reductions merges with the best that has some."""
        if bool(a.loops.inner) == bool(b.loops.inner):
            return self._merge(a, b)
        points, rows = (b, a) if a.loops.inner else (a, b)
        near = (self.group_of[n] for name in points.names for n in self._partners[name])
        rivals = {g.number: g for g in (rows, *near) if isinstance(g, Group) and g.loops.inner}
        if len(rivals) == 1:
            return self._merge(points, rows)

        def rank(group: Group) -> tuple[float, int]:
            saved = saved_bytes(points.loops, group.loops, self.buffers, self.readers)
            return -saved, group.number

        return any(self._merge(points, group) for group in sorted(rivals.values(), key=rank))

    def _rank(self, pair: Merge) -> tuple[int, bool, int, int]:
        """Pairs of the most bytes come first, of those pairs of reductions, then earlier nodes."""
        position = self.dependencies.position
        return -pair.saved, not pair.reduces, position[pair.first], position[pair.second]

    def _between(self, a: Group, b: Group) -> list[Group | Extern]:
        """Return the groups that lie between two, directly before the later one."""
        first, second = self._key(a), self._key(b)
        if self.dependencies.reaches(second, first):
            first, second = second, first
        return [self.group_of[name] for name in self.dependencies.between(first, second)]

    def _touching(self) -> Iterator[Merge]:
        """Pairs of nodes that access a common buffer."""
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
                    reduces = bool(first.over and second.over)
                    yield Merge(bytes_of(buffer), reduces, first.name, second.name)

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
        if not may_scatter_together(a.loops, b.loops, self.memory):
            return False
        for merged in align(a.loops, b.loops):
            ordered = self._in_order(merged)
            if not legal(ordered, self.memory, self.buffers) or not pays(ordered):
                continue
            if scans(ordered) and sweeps(ordered) > 1 and not held_whole(ordered):
                continue
            if not linked(a, b) and not meets(ordered, a.names, self.buffers):
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


def linked(first: Group, second: Group) -> bool:
    """Return whether the second group reads a buffer that the first fills."""
    return any(first.names & reads(n) for n in second.loops.nodes)
