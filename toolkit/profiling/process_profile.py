"""The profile of one process: its calls of graphs, its other operators, and what is measured."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tcdebug.compiler.events.run_events import ProfileRecorded
from tcdebug.compiler.events.schema import GraphBreak
from tcdebug.profiling.graph_calls import CompiledGraphs, GraphCall, graph_calls
from tcdebug.profiling.trace_spans import (
    LAUNCHES,
    DeviceSpan,
    HostSpan,
    Trace,
    read_trace,
    while_compiling,
)
from tcdebug.profiling.window import REGION, Window, measured_calls, measured_window
from tcdebug.reading.run_dir import Record

AUTOGRAD = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class ProcessProfile:
    """The trace of one process, and its measured part."""

    trace: Trace
    recorded: Mapping[str, Any]
    """The fields of its `profile` event."""
    calls: Sequence[GraphCall]
    window: Window
    measured: Sequence[GraphCall]
    once: frozenset[str]
    """Graphs whose only call is the first one."""
    eager: Sequence[HostSpan]
    """The outermost operators outside of graphs and compiles, in the measured part."""
    launched: Mapping[HostSpan, Sequence[DeviceSpan]]
    """GPU kernels by the range they belong to: a step of a graph, a whole call, or an operator."""

    @property
    def overhead_seconds(self) -> float:
        """The estimated seconds that profiling adds to a step: its events by their cost."""
        if not self.window.starts:
            return 0.0
        inside = [s for s in self.trace.host if self.window.has(s) and not while_compiling(s)]
        ranges = sum(span.event["cat"] == "user_annotation" for span in inside)
        cost = ranges * self.recorded["range_seconds"]
        cost += (len(inside) - ranges) * self.recorded["operator_seconds"]
        return float(cost) / len(self.window.starts)


def process_profiles(
    folder: Path, records: Sequence[Record], graphs: CompiledGraphs
) -> list[ProcessProfile]:
    """Return the profiles of a run's processes. Raises OSError, msgspec.DecodeError."""
    recorded = [r["data"] for r in records if r["event"] == ProfileRecorded.kind]
    return [process_profile(read_trace(folder / data["trace"]), data, graphs) for data in recorded]


def process_profile(
    trace: Trace, recorded: Mapping[str, Any], graphs: CompiledGraphs
) -> ProcessProfile:
    """Return the profile of a process from its trace and the fields of its `profile` event."""
    calls = list(graph_calls(trace, graphs))
    window = measured_window(trace, calls, recorded["frame"], recorded["steps"])
    measured, once = measured_calls(calls, window)
    eager = list(_eager(trace, calls, window))
    launched = _launched(trace, {*eager, *(s for c in calls for s in (*c.steps, c.span))})
    return ProcessProfile(trace, recorded, calls, window, measured, once, eager, launched)


def _eager(trace: Trace, calls: Sequence[GraphCall], window: Window) -> Iterator[HostSpan]:
    inside = {call.span for call in calls}
    for span in trace.host:
        if not (_is_operator(span) and window.has(span)) or while_compiling(span):
            continue
        if not any(outer in inside or _is_operator(outer) for outer in span.outer()):
            yield span


def _is_operator(span: HostSpan) -> bool:
    named = "::" in span.name and not span.name.startswith(("autograd::", "torch::autograd::"))
    return named and span.event["cat"] not in LAUNCHES


def _launched(trace: Trace, owners: set[HostSpan]) -> dict[HostSpan, list[DeviceSpan]]:
    found: dict[HostSpan, list[DeviceSpan]] = {}
    for kernel in trace.device:
        outer = kernel.launch.outer() if kernel.launch is not None else ()
        if (owner := next((span for span in outer if span in owners), None)) is not None:
            found.setdefault(owner, []).append(kernel)
    return found


@dataclass
class Places:
    """Finds where an operator outside of graphs runs. `breaks`: compile id -> line of its break."""

    process: ProcessProfile
    breaks: Mapping[str, str]
    regions: dict[tuple[Any, Any], list[HostSpan]] = field(default_factory=dict)
    """The calls of compiled frames by thread, in order of time."""

    def __post_init__(self) -> None:
        for span in self.process.trace.host:
            if REGION.match(span.name):
                self.regions.setdefault(_thread(span), []).append(span)

    def place(self, span: HostSpan) -> tuple[str, str]:
        """Return where an operator runs, in words, and the line of the program if it is known."""
        for outer in span.outer():
            if outer.name.startswith(AUTOGRAD):
                return f"backward of {outer.name.removeprefix(AUTOGRAD)}", ""
            if outer.event["cat"] == "user_annotation":
                return outer.name, ""
            if REGION.match(outer.name):
                return f"in graph {outer.name.rpartition(' ')[2]}, which has no kernels", ""
        line = self._broken_at(span)
        return ("after a graph break" if line else ""), line

    def _broken_at(self, span: HostSpan) -> str:
        """Return the line of the graph break after which an operator runs, if the frame continues
        in another graph of the same step; empty otherwise."""
        regions = self.regions.get(_thread(span), [])
        after = bisect_left(regions, span.end, key=lambda region: region.start)
        before = bisect_right(regions, span.start, key=lambda region: region.start) - 1
        if before < 0 or after >= len(regions) or regions[before].end > span.start:
            return ""
        if regions[after].start in self.process.window.starts:
            return ""
        return self.breaks.get(regions[before].name.rpartition(" ")[2], "")


def _thread(span: HostSpan) -> tuple[Any, Any]:
    return span.event.get("pid"), span.event.get("tid")


def lines_of_breaks(records: Sequence[Record]) -> dict[str, str]:
    """Compile id -> the line at which Dynamo ended the graph."""
    found = {}
    for record in records:
        where = record.get("user_loc") or {}
        if record["event"] == GraphBreak.kind and where.get("filename"):
            found[str(record.get("compile_id"))] = f"{where['filename']}:{where['line']}"
    return found
