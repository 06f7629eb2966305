"""Decides which part of a trace is measured: the steps after the first one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.profiling.graph_calls import GraphCall
from tcdebug.profiling.trace_spans import HostSpan, Trace, while_compiling

REGION = re.compile(r"Torch-Compiled Region: (?:!\d+/)?(\d+)/")


@dataclass(frozen=True)
class Window:
    """The measured part of a process, in microseconds. `starts` are the steps in it."""

    start: float
    end: float
    starts: tuple[float, ...]
    warm_up: int

    def has(self, span: HostSpan) -> bool:
        """Return whether a range lies in the measured part."""
        return self.start <= span.start < self.end

    @property
    def step_seconds(self) -> float | None:
        """The mean time from one step to the next; None if there is only one step."""
        if len(self.starts) < 2:
            return None
        last = self.end if self.end != float("inf") else self.starts[-1]
        count = len(self.starts) - (self.end == float("inf"))
        return (last - self.starts[0]) / count / 1e6


def measured_window(trace: Trace, calls: Sequence[GraphCall], frame: str, steps: int) -> Window:
    """Return the steps of a process. A step begins with a call of the first compiled frame.

    The first step is a warm-up. If there is no other, it is measured. Without such a frame, steps
    begin with calls of the first graph.
    """
    starts = [
        span.start
        for span in trace.host
        if (found := REGION.match(span.name)) and found[1] == frame and not while_compiling(span)
    ]
    if not starts and calls:
        starts = [call.span.start for call in calls if call.graph == calls[0].graph]
    if not starts:
        return Window(0.0, 0.0, (), 0)
    starts.sort()
    warm_up = 1 if len(starts) > 1 else 0
    end = starts[steps + 1] if steps and len(starts) > steps + 1 else float("inf")
    inside = tuple(s for s in starts[warm_up:] if s < end)
    return Window(inside[0], end, inside, warm_up)


def measured_calls(
    calls: Sequence[GraphCall], window: Window
) -> tuple[list[GraphCall], frozenset[str]]:
    """Return the calls in a window without the first call of each graph, which is slower.

    A graph whose only call is the first keeps it, and is among the names that are returned too.
    """
    first: dict[str, GraphCall] = {}
    for call in calls:
        first.setdefault(call.graph, call)
    inside = [call for call in calls if window.has(call.span)]
    count = Counter(call.graph for call in inside)
    once = frozenset(g for g, n in count.items() if n == 1 and window.has(first[g].span))
    return [c for c in inside if c is not first[c.graph] or c.graph in once], once
