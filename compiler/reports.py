"""Logs what the compile of a graph decided, what it wrote, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.devices.protocol import KernelSource
from tcdebug.compiler.events.schema import ComboWritten, CompileEnd, ExternCalled, KernelWritten
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.graph import Extern
from tcdebug.compiler.lower.stage import Lowered
from tcdebug.compiler.schedule.kernel import Schedule
from tcdebug.compiler.schedule.remarks import remarks
from tcdebug.compiler.stages.stage import Stages


def report_remarks(stages: Stages, schedule: Schedule, gate: Gate) -> None:
    """Log what was fused and what was not."""
    if stages.log.folder is None:
        return
    log = stages.log.bind(stage="schedule")
    for found in remarks(schedule, gate):
        where = asdict(found.location) if found.location else {}
        log.emit(found.remark, user_loc=where)


def report_kernels(
    stages: Stages, source: KernelSource, lines: Mapping[str, list[list[str]]]
) -> str:
    """Save and log the kernels before they are built, which may fail. Return the file."""
    log = stages.log
    path = log.save(f"kernels/{stages.name}.{source.suffix}", source.text)
    for call in source.calls.values():
        computes = [n.name for n in call.kernel.nodes]
        name = call.kernel.name
        event = KernelWritten(
            name, source.language, computes, call.moved, path, lines[name], call.code
        )
        log.emit(event)
    combined: dict[str, list[str]] = {}
    for name, call in source.calls.items():
        if call.combo is not None:
            combined.setdefault(call.combo.kernel.name, []).append(name)
    for name, members in combined.items():
        log.emit(ComboWritten(name, members, path))
    return path


def report_end(
    stages: Stages,
    lowered: Lowered,
    schedule: Schedule,
    calls: Mapping[str, KernelCall],
    seconds: float,
) -> None:
    """Log the calls of ATen that are left, and the end of the compile of a graph."""
    log = stages.log
    written = {node.name for kernel in schedule.kernels() for node in kernel.nodes}
    for node, op, reason in lowered.externs:
        if node not in written:  # a template may compute it
            log.emit(ExternCalled(op, node, reason))
    externs = Counter(
        s.origin.op for s in schedule.steps if isinstance(s, Extern) and s.alias_of is None
    )
    log.emit(CompileEnd(round(seconds, 6), len(calls), externs))
