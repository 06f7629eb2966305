"""Lists the kernels and library calls of a schedule as a profiler shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.events.schema import GraphStep
from tcdebug.compiler.ir.graph import Extern
from tcdebug.compiler.schedule.kernel import Kernel, Schedule


def graph_steps(
    schedule: Schedule, calls: Mapping[str, KernelCall], origins: Mapping[str, list[list[str]]]
) -> Iterator[GraphStep]:
    """Return every kernel and every call of an operator, in the order in which they run.

    `origins` is that of `codegen.wrapper.provenance`. A call that is not an operator is left out,
    because a profiler does not show it.
    """
    shown: set[str] = set()
    for position, step in enumerate(schedule.steps):
        if isinstance(step, Kernel) and step.combo:
            if step.combo not in shown:
                shown.add(step.combo)
                members = [k for k in schedule.kernels() if k.combo == step.combo]
                yield _of_combo(position, members, calls, origins)
        elif isinstance(step, Kernel):
            rows = origins[step.name]
            nodes = {node: where for _, node, _, where in rows}
            lines = list(dict.fromkeys(where for where in nodes.values() if where))
            moved = calls[step.name].moved
            yield GraphStep(position, step.name, True, [*nodes], [*nodes.values()], lines, moved)
        elif isinstance(step.target, torch._ops.OpOverload):
            where = _line(step)
            name, lines = profiled_name(step.target), [where] if where else []
            yield GraphStep(position, name, False, [step.origin.node], [where], lines, 0)


def _of_combo(
    position: int,
    members: Sequence[Kernel],
    calls: Mapping[str, KernelCall],
    origins: Mapping[str, list[list[str]]],
) -> GraphStep:
    """Return a combo kernel, which a profiler shows as one."""
    nodes = {node: where for k in members for _, node, _, where in origins[k.name]}
    lines = list(dict.fromkeys(where for where in nodes.values() if where))
    moved = sum(calls[k.name].moved for k in members)
    return GraphStep(position, members[0].combo, True, [*nodes], [*nodes.values()], lines, moved)


def profiled_name(operator: torch._ops.OpOverload) -> str:
    """Return the name of an operator in a profile, such as aten::mm."""
    namespace, _, rest = str(operator).partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


def _line(node: Extern) -> str:
    where = node.origin.location
    return f"{where.filename}:{where.line}" if where else ""
