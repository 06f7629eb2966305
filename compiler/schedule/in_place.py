"""memory.in_place: write a result of a kernel over a buffer that the kernel is the last to read.

Both are in the cache, and no memory is allocated. The kernel reads each element of the buffer only
at the point that overwrites it, and before it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    Pointwise,
    Scatter,
    memory_of,
    output_refs,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, sweep_numbers
from tcdebug.compiler.schedule.fusing.legality import reads_through, stores_in_order
from tcdebug.compiler.schedule.kernel import Kernel, Schedule

UNIT = "memory.in_place"
LOADS_STORED = ("cpu",)
"""Devices whose kernels load what an earlier sweep has stored. Others compute it again."""
aten = torch.ops.aten
FRESH = frozenset(
    (
        aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default,
        aten.convolution.default,
    )
)  # fmt: skip
"""Operators whose results share no memory with other values."""


def in_place(schedule: Schedule, gate: Gate, donated: frozenset[str] = frozenset()) -> Schedule:
    """Return the schedule with results stored over buffers that are dead after the same kernel.

    `donated` are inputs that the graph may overwrite.
    """
    graph, steps = schedule.graph, schedule.steps
    memory, buffers = memory_of(graph.nodes), graph.buffers()
    last = _last_reads(graph, steps, memory)
    changed: list[Kernel | Extern] = []
    free = set(donated)  # and buffers that a step allocated; not yet overwritten
    for position, step in enumerate(steps):
        if isinstance(step, Extern):
            if step.target in FRESH and step.out is not None:
                free.add(step.name)
            changed.append(step)
            continue
        dying = sorted(n for n in step.loaded() & free if last.get(n) == position)
        kernel = _stored_over(step, dying, buffers, memory, gate)
        taken = {target for node in kernel.nodes for target in written(node)}
        own = {n for n in step.stored if n in buffers and not _into(kernel, n)}
        free = (free | own) - taken
        changed.append(kernel)
    return Schedule(graph, tuple(changed))


def _into(kernel: Kernel, name: str) -> bool:
    return any(node.name == name and written(node) for node in kernel.nodes)


def _last_reads(
    graph: Graph, steps: Sequence[Kernel | Extern], memory: Mapping[str, str]
) -> dict[str, int]:
    """Memory -> the last step that reads it, without memory that the graph returns."""
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        names = reads(step) if isinstance(step, Extern) else step.loaded()
        last.update((memory.get(name, name), position) for name in names)
    for name in output_refs(graph):
        last.pop(memory.get(name, name), None)
    return last


def _stored_over(
    kernel: Kernel,
    dying: list[str],
    buffers: Mapping[str, Buffer],
    memory: Mapping[str, str],
    gate: Gate,
) -> Kernel:
    for old in dying:
        for node in kernel.nodes:
            if not isinstance(node, Pointwise) or node.name not in kernel.stored:
                continue
            if not _fits(node, kernel, old, buffers[old]):
                continue
            stored = replace(node, into=old)
            changed = tuple(stored if n is node else n for n in kernel.nodes)
            loops = Loops(kernel.outer, kernel.inner, changed)
            if not stores_in_order(loops, memory, buffers):
                continue
            if gate.allows(UNIT, f"{node.name}<-{old}"):
                kernel = replace(kernel, nodes=changed)
            break
    return kernel


def _fits(node: Pointwise, kernel: Kernel, name: str, old: Buffer) -> bool:
    """Return whether a node can be stored in this memory.

    In a kernel with inner loops, the store must wait for all other readers of the memory
    (codegen/kernels/sweeps.py), which is impossible if other nodes read the node's value there. Nor
    may a later sweep compute the node again, from memory that an earlier one has overwritten.
    On a GPU, threads may divide a tile for reading differently than for writing, and a thread waits
    for the others only for loads that its own value depends on.
    """
    if isinstance(node, Scatter) or node.into or kernel.is_across(node):
        return False
    out = node.out
    others = [n for n in kernel.nodes if n is not node]
    awaited = any(node.name in reads(n) for n in others)
    late = any(name in reads(n) for n in others)
    within = {n.name: n for n in kernel.nodes}
    ordered = out.device.type == "cpu" or name in reads_through(node, within)
    again = out.device.type not in LOADS_STORED and not _is_in_last_sweep(node, kernel)
    return out.fills(old) and ordered and not (kernel.inner and awaited and (late or again))


def _is_in_last_sweep(node: Pointwise, kernel: Kernel) -> bool:
    numbers = sweep_numbers(Loops(kernel.outer, kernel.inner, kernel.nodes))
    return numbers.get(node.name, 0) == max(numbers.values(), default=0)
