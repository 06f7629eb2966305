"""Reads the trace of torch.profiler: ranges of the host as a tree, and kernels of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

HOST = frozenset(("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"))
DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver"))
COMPILING = " (dynamo_timed)"
"""The end of the names of torch's ranges of compile phases."""
COMPILES = frozenset(("dynamo", "entire_frame_compile", "entire_backward_compile"))

ROUNDING = 0.002
"""Microseconds by which a range may end after its parent, because times are rounded."""

TraceEvent = dict[str, Any]


@dataclass(eq=False)
class HostSpan:
    """A range of a thread. Times are in microseconds."""

    event: TraceEvent
    name: str
    start: float
    end: float
    parent: HostSpan | None = None
    inside: list[HostSpan] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The duration."""
        return (self.end - self.start) / 1e6

    @property
    def compiles(self) -> bool:
        """Whether torch compiles in this range."""
        return self.name in COMPILES or self.name.endswith(COMPILING)

    def outer(self) -> Iterator[HostSpan]:
        """Yield the ranges around this one, the innermost first."""
        span = self.parent
        while span is not None:
            yield span
            span = span.parent


@dataclass(frozen=True, eq=False)
class DeviceSpan:
    """A kernel or copy on a GPU, and the call that launched it, if the trace has it."""

    event: TraceEvent
    name: str
    start: float
    seconds: float
    launch: HostSpan | None


@dataclass(frozen=True)
class Trace:
    """The trace of one process: ranges of all threads in order of time, and kernels of GPUs."""

    events: list[TraceEvent]
    base: int
    """The zero of all times, in nanoseconds."""
    host: Sequence[HostSpan]
    device: Sequence[DeviceSpan]


def read_trace(path: Path) -> Trace:
    """Read a trace file. Raises OSError, msgspec.DecodeError."""
    found: Mapping[str, Any] = msgspec.json.decode(path.read_bytes())
    return trace_of(list(found["traceEvents"]), int(found.get("baseTimeNanoseconds") or 0))


def trace_of(events: list[TraceEvent], base: int = 0) -> Trace:
    """Return the ranges and kernels among the events of a trace."""
    complete = [e for e in events if e.get("ph") == "X"]
    host = _nested([e for e in complete if e.get("cat") in HOST])
    launches = {
        _correlation(span.event): span
        for span in host
        if span.event["cat"] in LAUNCHES and _correlation(span.event) is not None
    }
    device = [
        DeviceSpan(
            event, str(event["name"]), float(event["ts"]), float(event.get("dur", 0)) / 1e6,
            launches.get(_correlation(event)),
        )
        for event in complete
        if event.get("cat") in DEVICE
    ]  # fmt: skip
    return Trace(events, base, host, sorted(device, key=lambda span: span.start))


def _correlation(event: TraceEvent) -> Any:
    return (event.get("args") or {}).get("correlation")


def _nested(events: Sequence[TraceEvent]) -> list[HostSpan]:
    """Return the ranges with their parents, which are on the same thread."""
    spans = [
        HostSpan(e, str(e["name"]), float(e["ts"]), float(e["ts"]) + float(e.get("dur", 0)))
        for e in events
    ]
    spans.sort(key=lambda span: (span.start, -span.end))
    threads: dict[tuple[Any, Any], list[HostSpan]] = {}
    for span in spans:
        stack = threads.setdefault((span.event.get("pid"), span.event.get("tid")), [])
        while stack and stack[-1].end + ROUNDING < span.end:
            stack.pop()
        if stack:
            span.parent = stack[-1]
            span.parent.inside.append(span)
        stack.append(span)
    return spans


def while_compiling(span: HostSpan) -> bool:
    """Return whether torch compiled during this range."""
    return span.compiles or any(outer.compiles for outer in span.outer())
