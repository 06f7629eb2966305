"""Finds the calls of compiled graphs in a trace, and the step of the graph that each event is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tcdebug.compiler.events.schema import CacheUsed, GraphStep
from tcdebug.profiling.trace_spans import LAUNCHES, HostSpan, Trace, while_compiling
from tcdebug.reading.run_dir import Record

INDUCTOR_GRAPH = re.compile(r"## Call CompiledFxGraph (\S+) ##")
PACKAGE = re.compile(r"tcdebug (package .+)")
EMBEDDED_GRAPH = re.compile(r"tcdebug graph (\S+) (\S+) (\S+)")
GENERATED = re.compile(r"(cpp|triton)_")
PREFIX = re.compile(r"graph_\d+_(?=cpp_)")
"""What inductor puts before the name of a C++ kernel in a profile."""


@dataclass(eq=False)
class GraphCall:
    """One call of a compiled graph. `graph` is its compile id and direction."""

    graph: str
    span: HostSpan
    steps: Mapping[HostSpan, GraphStep | None] = field(default_factory=dict)
    """Range directly in the call -> the step that it is; None if that is not known."""


@dataclass
class CompiledGraphs:
    """The graphs of a run: their steps, and how their ranges in a trace name them.

    After `torch._dynamo.reset`, compile ids restart, and a later graph gets a number.
    """

    steps: dict[str, list[GraphStep]] = field(default_factory=dict)
    """Graph -> its steps in order."""
    ranges: dict[str, str] = field(default_factory=dict)
    """Key of inductor's cache, or compile id, direction and hash -> graph. Graphs of inductor with
    equal keys compute the same lines, and count as the first of them."""
    _latest: dict[str, str] = field(default_factory=dict)

    def read(self, record: Record) -> None:
        """Record the step or the cache key of a graph that an event names."""
        data, plain = record["data"], _graph_name(record)
        if record["event"] == GraphStep.kind:
            step = msgspec.convert(data, GraphStep)
            name = self._latest.setdefault(plain, plain)
            if self.steps.get(name) and self.steps[name][-1].position >= step.position:
                number = 1 + sum(n.partition(" (")[0] == plain for n in self.steps)
                name = self._latest[plain] = f"{plain} ({number})"
            self.steps.setdefault(name, []).append(step)
            self.ranges[f"{plain} {record.get('graph_id') or '?'}"] = name
        elif _has_key(record) and plain in self._latest:
            self.ranges.setdefault(data["key"], self._latest[plain])

    def of_range(self, span: HostSpan) -> str:
        """Return the graph whose call a range is; empty if it is not a call of a graph."""
        if found := PACKAGE.match(span.name):
            return found[1]
        if found := EMBEDDED_GRAPH.match(span.name):
            return self.ranges.get(" ".join(found.groups()), f"{found[1]} {found[2]}")
        if not (found := INDUCTOR_GRAPH.match(span.name)):
            return ""
        return self.ranges.get(found[1]) or self._with_kernels(span) or "?"

    def steps_of(self, graph: str, call: HostSpan) -> Sequence[GraphStep]:
        """Return the steps of a graph. Those of a package are found by the kernels of a call."""
        named = self._with_kernels(call) if PACKAGE.match(call.name) else graph
        return self.steps.get(named, ())

    def _with_kernels(self, call: HostSpan) -> str:
        """Return the only graph with all generated kernels of a call; empty if there is none."""
        called = {profiled_kernel(span) for span in call.inside}
        called = {name for name in called if GENERATED.match(name)}
        having = [
            graph for graph, steps in self.steps.items() if called <= {step.name for step in steps}
        ]
        return having[0] if called and len(having) == 1 else ""


def compiled_graphs(records: Sequence[Record]) -> CompiledGraphs:
    """Return the graphs of a run, from its events."""
    found = CompiledGraphs()
    for record in records:
        found.read(record)
    return found


def _has_key(record: Record) -> bool:
    """Return whether an event gives the key of a graph in inductor's cache."""
    of_inductor = record["event"] == CacheUsed.kind and record.get("stage") == "inductor"
    return of_inductor and bool(record["data"]["key"])


def _graph_name(record: Record) -> str:
    return f"{record.get('compile_id') or '?'} {record.get('direction') or '?'}"


def graph_calls(trace: Trace, graphs: CompiledGraphs) -> Iterator[GraphCall]:
    """Yield the calls of graphs in order of time."""
    for span in trace.host:
        if (graph := graphs.of_range(span)) and not while_compiling(span):
            yield GraphCall(graph, span, _assigned(span, graphs.steps_of(graph, span)))


def profiled_kernel(span: HostSpan) -> str:
    """Return the name of a range as `graph.step` events have it."""
    return PREFIX.sub("", span.name)


def _assigned(call: HostSpan, steps: Sequence[GraphStep]) -> dict[HostSpan, GraphStep | None]:
    """Return the step of each range directly in a call.

    The n-th range with a name is the n-th step with this name, if there are as many of both, or
    only one such step.
    """
    ranges = [s for s in call.inside if s.event["cat"] not in LAUNCHES and not s.compiles]
    by_name: dict[str, list[GraphStep]] = {}
    for step in steps:
        by_name.setdefault(step.name, []).append(step)
    seen = Counter(profiled_kernel(s) for s in ranges)
    taken: Counter[str] = Counter()
    found: dict[HostSpan, GraphStep | None] = {}
    for span in ranges:
        name = profiled_kernel(span)
        candidates = by_name.get(name, [])
        if len(candidates) == 1:
            found[span] = candidates[0]
        elif len(candidates) == seen[name]:
            found[span] = candidates[taken[name]]
        else:
            found[span] = None
        taken[name] += 1
    return found
