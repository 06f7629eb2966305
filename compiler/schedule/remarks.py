"""Explains fusion: remarks on each kernel, and on each pair of kernels that was not fused.

A remark on a pair says why the two were not fused and, if the first is pointwise, why it was not
inlined. Remarks are derived from the finished schedule, so that fusion itself is not slowed down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcdebug.compiler.events.schema import Remark
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, Index
from tcdebug.compiler.ir.cost import bytes_of
from tcdebug.compiler.ir.expr import Load
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Location,
    LoopNode,
    Node,
    Pointwise,
    output_refs,
    reads,
)
from tcdebug.compiler.schedule.fusing.align import Loops, align, sweeps
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies
from tcdebug.compiler.schedule.fusing.legality import has_waiting_stores, illegal_read
from tcdebug.compiler.schedule.fusing.profit import crosses, pays, readers_of, too_large, work_of
from tcdebug.compiler.schedule.inlining.inline import LARGEST_BODY, UNIT, size_after
from tcdebug.compiler.schedule.inlining.inlining_cost import InliningCost
from tcdebug.compiler.schedule.kernel import Kernel, Schedule, between_steps


@dataclass(frozen=True)
class Located:
    """A remark, and the user's line of the node concerned."""

    remark: Remark
    location: Location | None


def remarks(schedule: Schedule, gate: Gate) -> Iterator[Located]:
    """All remarks on a schedule.

    Passed: the nodes that a kernel keeps out of memory. Missed: a kernel that reads the result of
    another one. Analysis: the loops of a kernel.
    """
    buffers = schedule.graph.buffers()
    kernels = schedule.kernels()
    for kernel in kernels:
        yield from _about(kernel, buffers)
    together, kept = between_steps(schedule), _NotInlined(schedule, gate)
    writer = {n.name: k for k in kernels for n in k.nodes if n.name in k.stored}
    for reader in kernels:
        for name in sorted(reader.loaded()):
            if name in writer:
                yield _missed(writer[name], reader, buffers[name], buffers, together, kept)


def _about(kernel: Kernel, buffers: dict[str, Buffer]) -> Iterator[Located]:
    last = kernel.nodes[-1]
    kept = [n.name for n in kernel.nodes if n.name not in kernel.stored]
    if len(kernel.nodes) > 1:
        saved = sum(2 * bytes_of(buffers[name]) for name in kept)
        text = f"fused: {len(kernel.nodes)} nodes in {kernel.name}, {len(kept)} never in memory"
        names = [n.name for n in kernel.nodes]
        yield Located(Remark("passed", text, names, saved), last.origin.location)
    loops = f"{_sizes(kernel.outer)} outside, {_sizes(kernel.inner)} inside"
    times = sweeps(Loops(kernel.outer, kernel.inner, kernel.nodes)) if kernel.inner else 1
    text = f"{kernel.name}: loops over {loops}, sweeps over them: {times}"
    yield Located(Remark("analysis", text, [last.name], 0), last.origin.location)


def _sizes(axes: Sequence[Axis]) -> str:
    return "[" + ", ".join(str(a.size) for a in axes) + "]"


def _missed(
    first: Kernel,
    second: Kernel,
    buffer: Buffer,
    buffers: dict[str, Buffer],
    together: Dependencies,
    kept: _NotInlined,
) -> Located:
    reader = next(n for n in second.nodes if buffer.name in reads(n))
    reason = _why_apart(first, second, buffers, together, kept)
    if obstacle := kept.why(buffer.name, reader):
        reason += f"; not inlined: {obstacle}"
    text = f"not fused: {buffer.name} and {reader.name}: {reason}"
    remark = Remark("missed", text, [buffer.name, reader.name], 2 * bytes_of(buffer))
    return Located(remark, reader.origin.location)


class _NotInlined:
    """Finds out why the remaining pointwise nodes were not inlined into their readers."""

    def __init__(self, schedule: Schedule, gate: Gate) -> None:
        refused = [d for d in gate.decisions if d.unit.startswith("fuse.") and not d.allowed]
        self.refused = bool(refused)
        self._inlining = {d.subject for d in refused if d.unit == UNIT}
        self._nodes = {node.name: node for node in schedule.graph.nodes}
        self._readers: dict[str, list[Node]] = {}
        for node in schedule.graph.nodes:
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)
        self._outputs = output_refs(schedule.graph)
        self._cost = InliningCost(schedule.graph)
        self.readers = readers_of(schedule.graph)

    def why(self, name: str, reader: LoopNode) -> str:
        """Return the first condition of inlining that a pair violates; empty for a reduction."""
        producer, consumer = self._nodes[name], self._nodes[reader.name]
        if not isinstance(producer, Pointwise) or isinstance(consumer, Extern):
            return ""
        if f"{name}->{reader.name}" in self._inlining:
            return "the gate denied it"
        readers = self._readers[name]
        stored = name in self._outputs or any(isinstance(r, Extern) for r in readers)
        if reason := self._cost.refuses(producer, readers, stored):
            return reason
        size = size_after(consumer.body, producer)
        too_large = f"the body would have {size} nodes, more than {LARGEST_BODY}"
        return too_large if size > LARGEST_BODY else ""


def _why_apart(
    first: Kernel,
    second: Kernel,
    buffers: dict[str, Buffer],
    together: Dependencies,
    kept: _NotInlined,
) -> str:
    """Return the first condition of fusion that a pair violates."""
    if reason := too_large(first.nodes, second.nodes, work_of((*first.nodes, *second.nodes))):
        return reason
    a, b = together.key_of(first.nodes[0].name), together.key_of(second.nodes[0].name)
    if between := together.between(a, b):
        return f"{between[0]} must run between them"
    reason = ""
    loops = [Loops(k.outer, k.inner, k.nodes) for k in (first, second)]
    for merged in align(*loops):
        wrong = illegal_read(merged)
        if wrong is not None:
            reason = reason or _how_read(*wrong)
        elif has_waiting_stores(merged, {}):
            reason = "each would overwrite memory that the other computes from"
        elif not pays(merged):
            reason = "several sweeps over one long row are no faster than several kernels"
        elif crosses(merged, buffers, kept.readers):
            reason = "one would read along an axis and write along another one"
        elif kept.refused:
            return "the gate denied it, or an earlier merge that it needs"
        else:
            return "each was merged with other nodes first"
    outer = " and ".join(_sizes(k.outer + k.inner) for k in (first, second))
    return reason or f"their loops over {outer} cannot be aligned"


def _how_read(producer: LoopNode, reader: LoopNode, load: Load) -> str:
    """Return how a node reads another one at a different point of the loops."""
    if load.index == producer.index:
        return f"{reader.name} runs once per row, and reads single elements of the row"
    how = _difference(load.index, producer.index)
    return f"{reader.name} reads {producer.name} {how}"


def _difference(read: Sequence[Index], written: Sequence[Index]) -> str:
    if sorted(map(str, read)) == sorted(map(str, written)):
        return "through a transposed index"
    there = ", ".join(map(str, written))
    return f"at [{', '.join(map(str, read))}], but it is written at [{there}]"
