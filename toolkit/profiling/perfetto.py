"""Writes the traces of a run's processes as one file for Perfetto, with graphs, nodes and lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events.schema import GraphStep
from tcdebug.profiling.graph_calls import GraphCall
from tcdebug.profiling.process_profile import ProcessProfile
from tcdebug.profiling.trace_spans import HostSpan, TraceEvent

TRACE = "trace.json"
"""The file in the run folder."""


def write_perfetto(folder: Path, found: Sequence[ProcessProfile]) -> Path:
    """Write one trace, and remove those of the processes.

    The events of kernels and library calls of graphs, and of GPU kernels that they launch, have the
    arguments graph, kernel, nodes, lines and bytes. What happens inside of compiles is left out.
    """
    first = min((p.trace.base for p in found), default=0)
    events = [event for process in found for event in _events(process, first)]
    path = folder / TRACE
    path.write_bytes(
        msgspec.json.encode(
            {"traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": first}
        )
    )
    for process in found:
        (folder / process.recorded["trace"]).unlink(missing_ok=True)
    return path


def _events(process: ProcessProfile, first: int) -> Iterator[TraceEvent]:
    shift = (process.trace.base - first) / 1e3
    hidden = {id(s.event) for s in process.trace.host if any(o.compiles for o in s.outer())}
    measured = {call.span for call in process.measured}
    described: dict[int, dict[str, Any]] = {}
    owners: dict[HostSpan, dict[str, Any]] = {}
    for call in process.calls:
        for span, step in call.steps.items():
            about = _about(call, span, step) | {"measured": call.span in measured}
            described[id(span.event)] = owners[span] = about
    for kernel in process.trace.device:
        outer = kernel.launch.outer() if kernel.launch is not None else ()
        if (owner := next((s for s in outer if s in owners), None)) is not None:
            described[id(kernel.event)] = owners[owner]
    for event in process.trace.events:
        if id(event) in hidden:
            continue
        shifted = {**event, "ts": event["ts"] + shift} if shift and "ts" in event else event
        if about_event := described.get(id(event)):
            shifted = {**shifted, "args": {**(event.get("args") or {}), **about_event}}
        yield shifted


def _about(call: GraphCall, span: HostSpan, step: GraphStep | None) -> dict[str, Any]:
    if step is None:
        return {"graph": call.graph, "kernel": span.name}
    about: dict[str, Any] = {
        "graph": call.graph,
        "kernel": step.name,
        "nodes": [*step.nodes],
        "lines": [*step.lines],
    }
    return about | ({"bytes": step.moved} if step.moved else {})
