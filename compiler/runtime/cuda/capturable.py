"""Puts a graph behind CUDA graphs, or finds the reasons why it cannot be captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tcdebug.compiler.events.schema import CudaGraphSkipped
from tcdebug.compiler.ir.graph import Extern, Graph, memory_of, output_refs, reads, written
from tcdebug.compiler.runtime.cuda.graphs import CudaGraphs
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.stages.stage import Stages

UNIT = "runtime.cudagraphs"

UNSAFE = (
    torch.Tag.cudagraph_unsafe,
    torch.Tag.dynamic_output_shape,
    torch.Tag.data_dependent_output,
)

READ_BY_CPU = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)


def captured(
    compiled: Callable[[list[Any]], Sequence[Any]],
    schedule: Schedule,
    stages: Stages,
    direction: str,
    gears: tuple[int, ...],
) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a compiled graph behind CUDA graphs, or unchanged if it cannot be captured."""
    reasons = obstacles(schedule)
    for reason in reasons:
        stages.log.emit(CudaGraphSkipped(reason))
    if reasons or not stages.gate.allows(UNIT, direction):
        return compiled
    return CudaGraphs(
        compiled,
        stages.log,
        written=written_inputs(schedule),
        sizes=tuple(k for k, given in enumerate(schedule.graph.inputs) if given.buffer is None),
        gears=gears,
        keeps=direction == "forward",
    )


def obstacles(schedule: Schedule) -> list[str]:
    """Return all reasons against a capture. Empty if it can be attempted."""
    graph = schedule.graph
    found = _devices(graph)
    for node in graph.nodes:
        if isinstance(node, Extern):
            found += _of_call(node)
    for given in graph.inputs:
        if given.buffer is None and given.symbol is None and given.name in _used(graph):
            found.append(f"input {given.name} is neither a plain tensor nor a size")
    if not any(not isinstance(n, Extern) or n.alias_of is None for n in graph.nodes):
        found.append("there is nothing to run")
    return found


def _devices(graph: Graph) -> list[str]:
    found: list[str] = []
    devices: dict[torch.device, str] = {}
    for name, buffer in graph.buffers().items():
        devices.setdefault(buffer.device, name)
    for device, name in devices.items():
        if device.type != "cuda":
            found.append(f"{name} is on the {device.type.upper()}")
    several = sorted(str(d) for d in devices if d.type == "cuda")
    if len(several) > 1:
        found.append(f"several GPUs: {', '.join(several)}")
    return found


def _of_call(node: Extern) -> list[str]:
    op, target = node.origin.op, node.target
    if node.binds or target in READ_BY_CPU:
        return [f"{op} ({node.name}) returns a size or number that only the CPU can read"]
    if isinstance(target, torch._ops.HigherOrderOperator):
        return [f"{op} ({node.name}) runs graphs of its own"]
    if isinstance(target, torch._ops.OpOverload) and any(t in target.tags for t in UNSAFE):
        return [f"{op} ({node.name}) is tagged as unsafe to capture"]
    return []


def _used(graph: Graph) -> set[str]:
    """Return the values that nodes read or the graph returns."""
    return output_refs(graph).union(*(reads(node) for node in graph.nodes))


def written_inputs(schedule: Schedule) -> frozenset[int]:
    """Return the positions of the inputs whose memory the graph writes to."""
    graph = schedule.graph
    owner = memory_of(graph.nodes)
    names = {owner.get(name, name) for node in graph.nodes for name in written(node)}
    return frozenset(k for k, given in enumerate(graph.inputs) if given.name in names)
