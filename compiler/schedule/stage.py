"""The schedule stage: splits, fuses and orders nodes, and decides which are stored in memory."""

from __future__ import annotations

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.graph import (
    Extern,
    Graph,
    LoopNode,
    Reduction,
    Scan,
    output_refs,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, moved
from tcdebug.compiler.schedule.fusing.column_sums import join_columns
from tcdebug.compiler.schedule.fusing.fusion import Fusion, Group
from tcdebug.compiler.schedule.inlining.between_kernels import recompute_between_kernels
from tcdebug.compiler.schedule.inlining.recompute import recompute_producers
from tcdebug.compiler.schedule.inlining.short_choices import apart
from tcdebug.compiler.schedule.kernel import Kernel, Schedule
from tcdebug.compiler.schedule.memory_order import in_memory_order
from tcdebug.compiler.schedule.splitting.equal_elements import reduce_equal_elements_once
from tcdebug.compiler.schedule.splitting.place_by_value import places_by_value
from tcdebug.compiler.schedule.splitting.split_across import apart_across
from tcdebug.compiler.schedule.splitting.split_reduction import split_reductions
from tcdebug.compiler.schedule.splitting.split_scan import split_scans
from tcdebug.compiler.schedule.splitting.split_short_rows import split_short_rows
from tcdebug.compiler.schedule.splitting.wide_gathers import widen_gathers

PREFIX = {"cpu": "cpp", "cuda": "triton"}
"""Type of device -> prefix of the names of its kernels. Others use the type of the device."""


def schedule_graph(graph: Graph, gate: Gate) -> Schedule:
    """Return the kernels and extern calls of a graph, fused as far as the gate allows."""
    graph = places_by_value(reduce_equal_elements_once(graph, gate), gate)
    graph = recompute_producers(graph, gate)
    graph, repeated = split_short_rows(graph, gate)
    graph, wide = widen_gathers(graph, gate)
    graph, divided = split_reductions(graph, gate)
    graph = split_scans(recompute_producers(graph, gate, divided), gate)
    fusion = _fused(graph, gate, repeated | wide)
    again = recompute_between_kernels(fusion, gate)
    if again is not graph:
        fusion = _fused(again, gate, repeated | wide)
    graph = fusion.graph
    groups = fusion.ordered()
    needed = _needed_outside(graph, groups)
    groups = in_memory_order(graph, groups, needed, fusion.dependencies, gate)
    steps: list[Kernel | Extern] = []
    for number, group in enumerate(groups):
        if isinstance(group, Extern):
            steps.append(group)
        else:
            steps.append(_kernel(group.loops, needed, number))
    return Schedule(graph, tuple(steps))


def _fused(graph: Graph, gate: Gate, apart: frozenset[str]) -> Fusion:
    """Return the groups of nodes that will be kernels."""
    fusion = Fusion(graph, gate, apart | _kept_apart(graph))
    fusion.run()
    join_columns(fusion)
    return fusion


def _kept_apart(graph: Graph) -> frozenset[str]:
    """Return the names of the values that no kernel both computes and reads."""
    made, buffers = {node.name: node for node in graph.nodes}, graph.buffers()
    pairs = ((made[name], node) for node in graph.nodes for name in reads(node) if name in made)
    return frozenset(
        producer.name
        for producer, consumer in pairs
        if apart(producer, consumer) or apart_across(producer, consumer, buffers)
    )


def _needed_outside(graph: Graph, groups: list[Group | Extern]) -> set[str]:
    """Return the buffers that are read outside the group that fills them."""
    needed = output_refs(graph)
    for group in groups:
        if isinstance(group, Extern):
            needed |= reads(group)
            if group.alias_of is not None:
                needed.add(group.alias_of)
            continue
        inside = group.names
        for node in group.loops.nodes:
            needed |= reads(node) - inside
    return needed


def _kernel(loops: Loops, needed: set[str], number: int) -> Kernel:
    outer, inner, nodes = renamed(loops)
    stored = frozenset(n.name for n in nodes if n.name in needed or written(n))
    return Kernel(kernel_name(nodes, number), outer, inner, nodes, stored)


def renamed(loops: Loops) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[LoopNode, ...]]:
    """The outer axes renamed to i0, i1, ..., the inner ones to r0, r1, ..., and the nodes."""
    outer = tuple(Axis(f"i{k}", a.size) for k, a in enumerate(loops.outer))
    inner = tuple(Axis(f"r{k}", a.size) for k, a in enumerate(loops.inner))
    fresh = zip(loops.axes, outer + inner, strict=True)
    nodes = moved(loops, {old: to_index(new) for old, new in fresh}, outer, inner)
    return outer, inner, nodes


def kernel_name(nodes: tuple[LoopNode, ...], number: int, *, template: bool = False) -> str:
    """Return the name of a kernel, which tells what it computes: cpp_red_fused_add_mul_3."""
    ops: list[str] = []
    for node in nodes:
        op = node.origin.op.removeprefix("aten.").partition(".")[0].strip("_")
        if op not in ops:
            ops.append(op)
    shape = "red_" if any(isinstance(n, Reduction) for n in nodes) and not template else ""
    shape = "scan_" if any(isinstance(n, Scan) for n in nodes) else shape
    fused = "fused_" if len(ops if template else nodes) > 1 else ""
    text = "_".join(ops[:4])
    safe = "".join(c if c.isalnum() or c == "_" else "_" for c in text)
    device = nodes[0].out.device.type
    return f"{PREFIX.get(device, device)}_{shape}{fused}{safe}_{number}"
