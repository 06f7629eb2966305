"""codegen.template: fuses matrix products with the pointwise kernels around them.

An ATen call for a product and a kernel that reads its result become one kernel, written from a
template: a reduction over the common dimension, the work on each element of the result (the
epilogue), and the computation of an operand, if it is cheap to repeat for every tile (the
prologue). The caller measures whether that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tcdebug.compiler.ir.cost import arithmetic, itemsize
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.graph import (
    Extern,
    LoopNode,
    Node,
    Pointwise,
    Reduction,
    Scatter,
    memory_of,
    output_refs,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, align
from tcdebug.compiler.schedule.fusing.legality import legal
from tcdebug.compiler.schedule.fusing.profit import LARGEST_KERNEL
from tcdebug.compiler.schedule.inlining.inline import inlined, plain
from tcdebug.compiler.schedule.inlining.inlining_cost import indirect
from tcdebug.compiler.schedule.kernel import Kernel, Schedule, between_steps
from tcdebug.compiler.schedule.products.matrix_product import OPERANDS, as_loops
from tcdebug.compiler.schedule.stage import kernel_name, renamed

DEVICES = ("cuda",)
CHEAP = 4
"""The most arithmetic (see ir/cost.py) of an operand that every tile recomputes."""

Step = Kernel | Extern


@dataclass(frozen=True)
class FusedProduct:
    """A kernel for a product, and the steps that it replaces."""

    extern: Extern
    kernel: Kernel
    """The kernel, without a template yet."""
    nodes: tuple[LoopNode, ...]
    """The product in the loop IR."""
    replaces: tuple[Step, ...]


def products(schedule: Schedule) -> list[Extern]:
    """Return the calls of products on devices that have templates."""
    calls = [s for s in schedule.steps if isinstance(s, Extern) and s.target in OPERANDS]
    return [c for c in calls if c.out is not None and c.out.device.type in DEVICES]


class ProductFusion:
    """Finds the kernels with which products can be fused. `take` fuses them."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._buffers = schedule.graph.buffers()
        self._nodes = {node.name: node for node in schedule.graph.nodes}
        self._calls = {n: x for n, x in self._nodes.items() if isinstance(x, Extern)}
        self._memory = memory_of(schedule.graph.nodes)
        self._outputs = output_refs(schedule.graph)
        self._dependencies = between_steps(schedule)
        self._step_of: dict[str, Step] = {}  # node -> the step that computes it
        self._readers: dict[str, dict[str, Step]] = {}  # value -> the steps that need it, by name
        for step in schedule.steps:
            self._enter(step)
        self._taken: list[FusedProduct] = []

    def forms(self, extern: Extern) -> list[FusedProduct]:
        """The product with its epilogue, and then also with its prologues if it has cheap ones.

        The last form replaces all steps that the first one replaces. Raises NotFused if no template
        can compute the product.
        """
        nodes = as_loops(extern, self._buffers, self._calls)
        prologues = self._prologues(extern, nodes[0])
        body = nodes[0].body
        for _, producer in prologues:
            body = inlined(body, producer)
        inside = (replace(nodes[0], body=body), *nodes[1:])
        kernels = [kernel for kernel, _ in prologues]
        epilogue = self._epilogue(extern, inside, kernels)
        found = [self._fused(extern, nodes, epilogue, [])]
        if kernels:
            found.append(self._fused(extern, inside, epilogue, kernels))
        return found

    def why_no_epilogue(self, fused: FusedProduct) -> str:
        """Return why no kernel that reads a product was fused with it; empty if one was."""
        readers = self._kernels_reading(fused.extern.name)
        gone = {step.name for step in fused.replaces}
        if not readers or any(kernel.name in gone for kernel in readers):
            return ""
        reasons = (_why_alone(kernel, fused.extern) for kernel in readers)
        return next(filter(None, reasons), f"{readers[0].name} reads it elsewhere, or later")

    def take(self, fused: FusedProduct) -> None:
        """Replace the steps of a fused product by its kernel."""
        first, *others = (_subject(step) for step in fused.replaces)
        for name in others:
            keys = [self._dependencies.key_of(n) for n in (first, name)]
            self._dependencies.merge(*keys)
        for step in fused.replaces:
            for readers in self._readers.values():
                readers.pop(step.name, None)
            self._step_of.update(dict.fromkeys(_computed(step), fused.kernel))
        self._enter(fused.kernel)
        self._taken.append(fused)

    def schedule(self) -> Schedule:
        """Return the schedule with the fused products that were taken."""
        if not self._taken:
            return self._schedule
        order = self._dependencies.order()
        steps = list({(s := self._step_of[name]).name: s for name in order}.values())
        products = {fused.extern.name: fused.nodes for fused in self._taken}
        kept = {name for step in steps for name in _computed(step)}
        nodes: list[Node] = []
        for node in self._schedule.graph.nodes:
            if node.name in products:
                nodes += products[node.name]
            elif node.name in kept:
                nodes.append(node)
        graph = replace(self._schedule.graph, nodes=tuple(nodes))
        return _without_unread_views(Schedule(graph, tuple(steps)))

    def _enter(self, step: Step) -> None:
        self._step_of.update(dict.fromkeys(_computed(step), step))
        for name in _needed(step):
            self._readers.setdefault(name, {})[step.name] = step

    def _kernels_reading(self, name: str) -> list[Kernel]:
        readers = self._readers.get(name, {}).values()
        return [step for step in readers if isinstance(step, Kernel)]

    # -- epilogues and prologues ------------------------------------------------------------

    def _fused(
        self,
        extern: Extern,
        nodes: tuple[LoopNode, ...],
        epilogue: Kernel | None,
        prologues: Sequence[Kernel],
    ) -> FusedProduct:
        loops, stored, number = _loops(nodes), {extern.name}, 0
        replaces: tuple[Step, ...] = (*prologues, extern)
        if epilogue is not None:
            loops = next(self._together(loops, epilogue))
            replaces = (*replaces, epilogue)
            kept = self._read_elsewhere(extern.name, epilogue)
            stored = set(epilogue.stored) | (stored if kept else set())
            number = int(epilogue.name.rpartition("_")[2])
        outer, inner, moved = renamed(loops)
        names = {step.name for step in self._step_of.values()}
        while (name := kernel_name(moved, number, template=True)) in names:
            number += 1
        kernel = Kernel(name, outer, inner, moved, frozenset(stored))
        return FusedProduct(extern, kernel, nodes, replaces)

    def _together(self, loops: Loops, epilogue: Kernel) -> Iterator[Loops]:
        """The ways to write a kernel in the loops of a product, at each element of the result."""
        for merged in align(loops, Loops(epilogue.outer, (), epilogue.nodes)):
            one_sum = len(merged.inner) == 1 and len(merged.nodes[0].axes) == len(merged.outer)
            outside = all(len(n.filled) == len(merged.outer) for n in merged.nodes)
            if one_sum and outside and legal(merged, self._memory, self._buffers):
                yield merged

    def _epilogue(
        self, extern: Extern, nodes: tuple[LoopNode, ...], prologues: Sequence[Kernel]
    ) -> Kernel | None:
        """Return the first kernel that can be the epilogue of a product."""
        for kernel in self._kernels_reading(extern.name):
            if _why_alone(kernel, extern) or self._would_cycle(extern, kernel, *prologues):
                continue
            if next(self._together(_loops(nodes), kernel), None) is not None:
                return kernel
        return None

    def _prologues(self, extern: Extern, product: LoopNode) -> list[tuple[Kernel, Pointwise]]:
        """The cheap kernels that compute only an operand, with the nodes that they compute."""
        found: list[tuple[Kernel, Pointwise]] = []
        for name in sorted({load.buffer for load in loads(product.body)}):
            kernel, producer = self._step_of.get(name), self._nodes.get(name)
            if not isinstance(kernel, Kernel) or not isinstance(producer, Pointwise):
                continue
            if len(kernel.nodes) > 1 or kernel.template is not None:
                continue
            if written(producer) or not plain(producer) or not _is_cheap(producer):
                continue
            others = [k for k, _ in found]
            if self._read_elsewhere(name, extern) or self._would_cycle(extern, kernel, *others):
                continue
            found.append((kernel, producer))
        return found

    def _would_cycle(self, *steps: Step) -> bool:
        """Whether merging steps would make a cycle, because another must run between them."""
        keys = {self._dependencies.key_of(_subject(step)) for step in steps}
        return self._dependencies.encloses(keys)

    def _read_elsewhere(self, name: str, reader: Step) -> bool:
        """Return whether another step than `reader`, or an output, needs a value in memory."""
        return name in self._outputs or bool(self._readers.get(name, {}).keys() - {reader.name})


def _loops(nodes: tuple[LoopNode, ...]) -> Loops:
    product = nodes[0]
    assert isinstance(product, Reduction)
    return Loops(product.axes, product.reduced, nodes)


def _subject(step: Step) -> str:
    """Return the node that identifies a step."""
    return step.subject if isinstance(step, Kernel) else step.name


def _computed(step: Step) -> list[str]:
    return [node.name for node in step.nodes] if isinstance(step, Kernel) else [step.name]


def _needed(step: Step) -> set[str]:
    """Return the values that must be in memory for a step."""
    if isinstance(step, Extern):
        return reads(step) | ({step.alias_of} if step.alias_of is not None else set())
    return step.loaded() | {name for node in step.nodes for name in written(node)}


def _why_alone(kernel: Kernel, extern: Extern) -> str:
    """Return why a kernel cannot be the epilogue of a product; empty if it can."""
    if kernel.template is not None:
        return f"{kernel.name} is a product too"
    if kernel.inner or any(isinstance(n, Scatter) for n in kernel.nodes):
        return f"{kernel.name} is not pointwise"
    if any(extern.name in written(n) for n in kernel.nodes):
        return f"{kernel.name} stores over it"
    if len(kernel.nodes) + 2 > LARGEST_KERNEL:
        return f"{kernel.name} has {len(kernel.nodes)} nodes"
    return ""


def _is_cheap(producer: Pointwise) -> bool:
    """Return whether an operand is cheap enough for every tile to recompute it."""
    read = [load for load in loads(producer.body) if load.axes == producer.body.axes]
    bytes_read = sum(itemsize(load.dtype) for load in read)
    dear = arithmetic(producer.body) > CHEAP or indirect(producer.body)
    return not dear and bytes_read <= 2 * itemsize(producer.out.dtype)


def _without_unread_views(schedule: Schedule) -> Schedule:
    """Return the schedule without views that only removed calls read."""
    needed = set(output_refs(schedule.graph))
    steps: list[Step] = []
    for step in reversed(schedule.steps):
        if isinstance(step, Extern) and step.name not in needed and step.only_views:
            continue
        steps.append(step)
        needed |= _needed(step)
    kept = {name for step in steps for name in _computed(step)}
    nodes = tuple(n for n in schedule.graph.nodes if n.name in kept)
    return Schedule(replace(schedule.graph, nodes=nodes), tuple(reversed(steps)))
