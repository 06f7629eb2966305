"""memory.order: run what frees memory before what asks for more, where that lowers the peak.

The order of a program often computes both gradients of a product one after the other; taken the
other way round, what only the second needs is free before the first one's result is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Extern, Graph, memory_of, output_refs, reads, written
from tcdebug.compiler.schedule.cost import bytes_of
from tcdebug.compiler.schedule.dependencies import Dependencies
from tcdebug.compiler.schedule.fusion import Group
from tcdebug.compiler.schedule.in_place import FRESH

UNIT = "memory.order"
WORTH = 1 << 20
"""Bytes by which the peak has to fall."""
SHARE = 0.02
"""Of the peak, at least."""
HELD = ("primals_", "arg")
"""How AOTAutograd's names of inputs begin that the caller keeps; others are free after use."""

Step = Group | Extern


class Lifetimes:
    """Which memory the steps of a graph ask for, and which of them are the last to read it."""

    def __init__(self, graph: Graph, steps: Sequence[Step], needed: set[str]) -> None:
        """`needed` are the values that are read outside of the step that makes them."""
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
        """Bytes that each step frees, less those that it asks for, as long as none has run."""
        return [
            sum(self.sizes.get(n, 0) for n in names if len(self.readers[n]) == 1) - self.asked[k]
            for k, names in enumerate(self.uses)
        ]

    def peak(self, order: Sequence[int]) -> int:
        """Bytes that are in use at most when the steps run in an order.

        A kernel is taken to store over what dies in it and is as large: see `memory.in_place`.
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
    """The steps in an order that keeps all dependencies and needs no more memory at a time."""
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
    """Of what may run next always what frees more than it asks for, else what comes first.

    Views ask for nothing: each runs when the first step needs it.
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
    """The steps other than views that each has to wait for; what comes first is known first."""
    waiting: list[set[int]] = []
    for found in before:
        through = [waiting[b] for b in found & views]
        waiting.append((found - views).union(*through))
    return waiting


def _is_view(step: Step) -> bool:
    return isinstance(step, Extern) and step.only_views


def _is_fresh(step: Step) -> bool:
    """Whether what a step makes is nobody else's."""
    return not isinstance(step, Extern) or step.target in FRESH


def _names(step: Step) -> Sequence[str]:
    if isinstance(step, Extern):
        return (step.name,)
    return [node.name for node in step.loops.nodes]


def _touched(step: Step) -> set[str]:
    """What a step reads, writes to or makes: the last that touches memory is where it ends."""
    nodes = (step,) if isinstance(step, Extern) else step.loops.nodes
    return {name for n in nodes for name in (*reads(n), *written(n), n.name)}
