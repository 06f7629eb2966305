"""memory.order: run steps that free memory before steps that allocate it, to lower the peak.

Programs often compute the two gradients of a product one after the other. In the opposite order,
the operands that only the second gradient needs are freed before the first result is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.graph import Extern, Graph, memory_of, output_refs, reads, written
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies
from tcdebug.compiler.schedule.fusing.fusion import Group
from tcdebug.compiler.schedule.in_place import FRESH

UNIT = "memory.order"
WORTH = 1 << 20
"""Bytes by which the peak must fall at least."""
SHARE = 0.02
"""The share of the peak by which it must fall at least."""
HELD = ("primals_", "arg")
"""Prefixes of AOTAutograd's names of inputs that the caller keeps. Others are freed after use."""

Step = Group | Extern


class Lifetimes:
    """The memory that each step of a graph allocates, and the steps that read it."""

    def __init__(self, graph: Graph, steps: Sequence[Step], needed: set[str]) -> None:
        """`needed` are the values that are read outside the step that makes them."""
        owner = memory_of(graph.nodes)
        sizes = {name: bytes_of(buffer) for name, buffer in graph.buffers().items()}
        held = {i.name for i in graph.inputs if i.name.startswith(HELD)} | set(graph.constants)
        held |= {owner.get(name, name) for name in output_refs(graph)}
        made = [[n for n in _names(s) if n in needed and n not in owner] for s in steps]
        self.made = [[sizes.get(n, 0) for n in names] for names in made]
        self.asked = [sum(bytes_made) for bytes_made in self.made]
        self.sizes = sizes
        self.calls = {k for k, step in enumerate(steps) if isinstance(step, Extern)}
        self.own = {n for k, names in enumerate(made) if _is_fresh(steps[k]) for n in names}
        self.readers: dict[str, set[int]] = {}
        for k, step in enumerate(steps):
            if _is_view(step):
                continue
            used = {owner.get(name, name) for name in _touched(step)}
            for name in used - held:
                self.readers.setdefault(name, set()).add(k)
        self.uses: list[list[str]] = [[] for _ in steps]
        for name, readers in self.readers.items():
            for k in readers:
                self.uses[k].append(name)
        self.given = sum(sizes.get(i.name, 0) for i in graph.inputs if i.name in self.readers)

    def gains(self) -> list[int]:
        """The bytes that each step frees minus those it allocates, before any step has run."""
        return [
            sum(self.sizes.get(n, 0) for n in names if len(self.readers[n]) == 1) - self.asked[k]
            for k, names in enumerate(self.uses)
        ]

    def peak(self, order: Sequence[int]) -> int:
        """Return the most bytes in use when the steps run in an order.

        Assumes that a kernel stores over buffers of the same size that are dead after it; see
        `memory.in_place`.
        """
        left = {name: set(readers) for name, readers in self.readers.items()}
        live = most = self.given
        for k in order:
            fresh = list(self.made[k])
            for name in self.uses[k] if k not in self.calls else ():
                if name in self.own and left[name] == {k} and self.sizes[name] in fresh:
                    fresh.remove(self.sizes[name])
            live += sum(fresh)
            most = max(most, live)
            live += self.asked[k] - sum(fresh)
            for name in self.uses[k]:
                left[name].discard(k)
                live -= self.sizes.get(name, 0) if not left[name] else 0
        return most


def in_memory_order(
    graph: Graph, steps: list[Step], needed: set[str], dependencies: Dependencies, gate: Gate
) -> list[Step]:
    """The steps in an order with a lower peak; unchanged if none is found or the gate denies it."""
    place = {dependencies.key_of(next(iter(_names(s)))): k for k, s in enumerate(steps)}
    before = [{place[b] for b in dependencies.groups_before(key)} for key in place]
    lifetimes = Lifetimes(graph, steps, needed)
    order = _freeing_first(steps, before, lifetimes)
    now, then = lifetimes.peak(range(len(steps))), lifetimes.peak(order)
    if now - then < max(WORTH, SHARE * now) or not gate.allows(UNIT, "schedule"):
        return steps
    return [steps[k] for k in order]


def _freeing_first(
    steps: Sequence[Step], before: Sequence[set[int]], lifetimes: Lifetimes
) -> list[int]:
    """Return a topological order that runs steps that free memory early, and else the first step.

    Views allocate nothing. Each runs just before the first step that needs it.
    """
    views = {k for k, step in enumerate(steps) if _is_view(step)}
    waiting = _through_views(before, views)
    after: dict[int, list[int]] = {}
    for k, found in enumerate(waiting):
        for b in found if k not in views else ():
            after.setdefault(b, []).append(k)
    left = {name: set(readers) for name, readers in lifetimes.readers.items()}
    gains = lifetimes.gains()
    order: list[int] = []
    done: set[int] = set()

    def run(k: int) -> None:
        for b in sorted(before[k] & views - done):
            run(b)
        order.append(k)
        done.add(k)

    ready = {k for k, found in enumerate(waiting) if not found and k not in views}
    freeing = {k for k in ready if gains[k] > 0}
    while ready:
        best = max(freeing, key=lambda k: (gains[k], -k)) if freeing else min(ready)
        ready.discard(best)
        freeing.discard(best)
        run(best)
        for name in lifetimes.uses[best]:
            left[name].discard(best)
            if len(left[name]) == 1:
                (last,) = left[name]
                gains[last] += lifetimes.sizes.get(name, 0)
                freeing |= {last} if last in ready and gains[last] > 0 else set()
        for k in after.get(best, ()):
            waiting[k].discard(best)
            if not waiting[k]:
                ready.add(k)
                freeing |= {k} if gains[k] > 0 else set()
    for k in sorted(views):
        if k not in done:
            run(k)
    return order


def _through_views(before: Sequence[set[int]], views: set[int]) -> list[set[int]]:
    """Return the steps other than views that each step waits for, directly or through views."""
    waiting: list[set[int]] = []
    for found in before:
        through = [waiting[b] for b in found & views]
        waiting.append((found - views).union(*through))
    return waiting


def _is_view(step: Step) -> bool:
    return isinstance(step, Extern) and step.only_views


def _is_fresh(step: Step) -> bool:
    """Return whether the results of a step share no memory with other values."""
    return not isinstance(step, Extern) or step.target in FRESH


def _names(step: Step) -> Sequence[str]:
    if isinstance(step, Extern):
        return (step.name,)
    return [node.name for node in step.loops.nodes]


def _touched(step: Step) -> set[str]:
    """Return the values that a step reads, writes to or makes."""
    nodes = (step,) if isinstance(step, Extern) else step.loops.nodes
    return {name for n in nodes for name in (*reads(n), *written(n), n.name)}
