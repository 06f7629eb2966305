"""Tracks which groups of nodes must run before which others while groups are merged."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from tcdebug.compiler.ir.arithmetic.index import Symbol
from tcdebug.compiler.ir.graph import (
    Extern,
    Graph,
    memory_of,
    reads,
    symbols_of,
    written,
)


class Dependencies:
    """The dependency graph of groups. Each node starts as its own group; `merge` joins two.

    Besides data dependencies there are three kinds of edges: effects keep their order, reads of
    memory run before later writes to it, and sizes are bound before they are used.
    """

    def __init__(self, graph: Graph) -> None:
        self.position = {node.name: k for k, node in enumerate(graph.nodes)}
        self._names = [node.name for node in graph.nodes]
        self._key = list(range(len(self._names)))
        self._before: list[set[int]] = [set() for _ in self._names]
        self._add_edges(graph)
        self._ancestors: list[int] = []
        self._refresh()

    def _add_edges(self, graph: Graph) -> None:
        root = memory_of(graph.nodes)
        readers: dict[str, list[int]] = {}
        writer: dict[str, int] = {}
        last_effect: int | None = None
        binder: dict[Symbol, int] = {}
        for k, node in enumerate(graph.nodes):
            for name in reads(node):
                base = root.get(name, name)
                if name in self.position:
                    self._before[k].add(self.position[name])
                if base in writer:
                    self._before[k].add(writer[base])
                readers.setdefault(base, []).append(k)
            self._before[k].update(binder[s] for s in symbols_of(node) if s in binder)
            for name in written(node):
                base = root.get(name, name)
                self._before[k].update(r for r in readers.get(base, ()) if r != k)
                self._before[k].update([writer[base]] if base in writer else ())
                writer[base] = k
            if isinstance(node, Extern):
                binder.update(dict.fromkeys(node.binds, k))
                if node.effect:
                    if last_effect is not None:
                        self._before[k].add(last_effect)
                    last_effect = k

    def _refresh(self) -> None:
        """Compute the ancestors of every group as bit sets."""
        ancestors = [0] * len(self._names)
        for k in self._topological():
            mask = 0
            for before in self.groups_before(k):
                mask |= ancestors[before] | (1 << before)
            ancestors[k] = mask
        self._ancestors = ancestors

    def groups_before(self, key: int) -> set[int]:
        """Return the groups that a group directly depends on."""
        return {self._key[b] for b in self._before[key]} - {key}

    def key_of(self, name: str) -> int:
        """Return the group that a node is in."""
        return self._key[self.position[name]]

    def reaches(self, first: int, second: int) -> bool:
        """Return whether `second` depends on `first`, directly or not."""
        return bool(self._ancestors[second] >> first & 1)

    def blocked(self, first: int, second: int) -> bool:
        """Whether merging two groups would make a cycle, because another lies between them."""
        return any(True for _ in self._lying_between(first, second)) or self.reaches(second, first)

    def encloses(self, keys: set[int]) -> bool:
        """Whether merging these groups would make a cycle, because another lies between two."""
        return any(
            self.reaches(first, between)
            for key in keys
            for between in self.groups_before(key) - keys
            for first in keys
        )

    def between(self, first: int, second: int) -> list[str]:
        """One node of each group that must run between two and that the second directly needs."""
        return [self._names[key] for key in sorted(self._lying_between(first, second))]

    def _lying_between(self, first: int, second: int) -> Iterator[int]:
        groups = self.groups_before(second) - {first}
        return (group for group in groups if self.reaches(first, group))

    def merge(self, first: int, second: int) -> None:
        """Merge two groups. The result has the key of the first."""
        for k, key in enumerate(self._key):
            if key == second:
                self._key[k] = first
        self._before[first] |= self._before[second]
        self._before[second] = set()
        pair = 1 << first | 1 << second
        above = (self._ancestors[first] | self._ancestors[second]) & ~pair
        self._ancestors = [
            (mask | above | pair) & ~(1 << second) if mask & pair else mask
            for mask in self._ancestors
        ]
        self._ancestors[first] = above

    def _topological(self) -> list[int]:
        """Return the group keys in a topological order that prefers earlier nodes."""
        keys = sorted(set(self._key))
        waiting = {k: self.groups_before(k) for k in keys}
        after: dict[int, list[int]] = {k: [] for k in keys}
        for k, before in waiting.items():
            for b in before:
                after[b].append(k)
        ready = [k for k in keys if not waiting[k]]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            k = heapq.heappop(ready)
            order.append(k)
            for n in after[k]:
                waiting[n].discard(k)
                if not waiting[n]:
                    heapq.heappush(ready, n)
        if len(order) != len(keys):
            raise AssertionError("the dependencies of a schedule have a cycle")
        return order

    def order(self) -> list[str]:
        """All nodes, group by group, in an order in which the groups can run."""
        members: dict[int, list[str]] = {}
        for k, name in enumerate(self._names):
            members.setdefault(self._key[k], []).append(name)
        return [name for key in self._topological() for name in members[key]]
