"""Adds up the measured time by kernel, line and graph."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tcdebug.compiler.events.schema import GraphStep, KernelLoaded
from tcdebug.profiling.graph_calls import GraphCall
from tcdebug.profiling.profile import KernelCost, LineCost
from tcdebug.profiling.trace_spans import DeviceSpan, HostSpan
from tcdebug.reading.run_dir import Record

Key = tuple[Any, ...]


@dataclass
class _Total:
    """The totals of the calls of one kernel."""

    name: str
    kind: str
    graph: str
    steps: list[GraphStep] = field(default_factory=list)
    where: str = ""
    line: str = ""
    calls: int = 0
    host_seconds: float = 0.0
    device_seconds: float = 0.0
    device: list[DeviceSpan] = field(default_factory=list)


@dataclass
class Attribution:
    """The totals so far. `copy_speeds` are in bytes per second."""

    copy_speeds: Mapping[str, float]
    resources: Mapping[str, Record]
    """Name of a GPU kernel -> its newest `kernel_loaded` event."""
    steps: Mapping[str, Sequence[GraphStep]]
    """Graph -> its steps, by which kernels are found that a CUDA graph replays."""
    totals: dict[Key, _Total] = field(default_factory=dict)

    def add_graph_call(
        self, call: GraphCall, launched: Mapping[HostSpan, Sequence[DeviceSpan]]
    ) -> None:
        """Add the kernels and library calls of a call of a graph.

        `launched` are the GPU kernels by the range that launched them.
        """
        for span, step in call.steps.items():
            key: Key = (call.graph, span.name if step is None else step.position)
            generated = step is not None and step.generated
            name = span.name if step is None else step.name
            total = self._total(key, name, "generated" if generated else "library", call.graph)
            if step is not None and step not in total.steps:
                total.steps.append(step)
            self._count(total, span, launched.get(span, ()))
        for kernel in launched.get(call.span, ()):
            self._add_replayed(call, kernel)

    def _add_replayed(self, call: GraphCall, kernel: DeviceSpan) -> None:
        """Add a kernel that a graph launched outside of its steps, as in a replay."""
        steps = [s for s in self.steps.get(call.graph, ()) if s.generated and s.name == kernel.name]
        key = (call.graph, steps[0].position if len(steps) == 1 else kernel.name)
        total = self._total(key, kernel.name, "generated" if steps else "library", call.graph)
        total.steps += [s for s in steps if s not in total.steps]
        total.calls += 1
        total.device_seconds += kernel.seconds
        total.device.append(kernel)

    def add_eager(
        self, span: HostSpan, where: str, line: str, launched: Sequence[DeviceSpan]
    ) -> None:
        """Add an operator that ran outside of the graphs."""
        total = self._total((span.name, where, line), span.name, "eager", "")
        total.where, total.line = where, line
        self._count(total, span, launched)

    def _total(self, key: Key, name: str, kind: str, graph: str) -> _Total:
        return self.totals.setdefault(key, _Total(name, kind, graph))

    def _count(self, total: _Total, span: HostSpan, launched: Sequence[DeviceSpan]) -> None:
        total.calls += 1
        total.host_seconds += span.seconds
        total.device_seconds += sum(kernel.seconds for kernel in launched)
        total.device += launched

    # -- results ----------------------------------------------------------------------------

    def kernels(self) -> list[KernelCost]:
        """Return the cost of each kernel, library call and operator, the most expensive first."""
        found = [self._cost(total) for total in self.totals.values()]
        whole: dict[str, float] = {}
        for cost in found:
            whole[cost.device] = whole.get(cost.device, 0.0) + cost.seconds
        for cost in found:
            cost.share = cost.seconds / whole[cost.device] if whole[cost.device] else 0.0
        return sorted(found, key=lambda cost: (cost.device != "cuda", -cost.seconds))

    def _cost(self, total: _Total) -> KernelCost:
        device = "cuda" if total.device else "cpu"
        seconds = total.device_seconds if total.device else total.host_seconds
        mean = seconds / total.calls
        cost = KernelCost(
            total.name, total.kind, device, total.graph,
            list(dict.fromkeys(node for step in total.steps for node in step.nodes)),
            _lines_of(total), total.calls, seconds, mean, 0.0, where=total.where,
        )  # fmt: skip
        moved = {step.moved for step in total.steps}
        if len(moved) == 1 and (size := moved.pop()):
            cost.moved = size
            cost.bandwidth = size / mean if mean else None
            if cost.bandwidth is not None and (speed := self.copy_speeds.get(device)):
                cost.of_copy = cost.bandwidth / speed
        if total.device:
            self._add_resources(cost, total)
        return cost

    def _add_resources(self, cost: KernelCost, total: _Total) -> None:
        """Add the GPU resources of a kernel, from the compiler or otherwise from the profiler."""
        names = dict.fromkeys(kernel.name for kernel in total.device)
        cost.device_kernels = [name for name in names if name != cost.name]
        if len(names) > 1:
            return
        args: Mapping[str, Any] = total.device[-1].event.get("args") or {}
        loaded = self.resources.get(next(iter(names)), {}).get("data", {})
        cost.registers = loaded.get("registers", args.get("registers per thread"))
        cost.spilled = loaded.get("spilled")
        cost.shared = loaded.get("shared", args.get("shared memory"))
        if (occupied := args.get("est. achieved occupancy %")) is not None:
            cost.occupancy = float(occupied) / 100


def _lines_of(total: _Total) -> dict[str, int]:
    """Return the lines of a kernel with the number of their nodes, most nodes first."""
    lines = [line for step in total.steps for line in step.lines]
    nodes = Counter(line for step in total.steps for line in step.node_lines)
    found = {line: nodes[line] for line in [*lines, *([total.line] if total.line else [])]}
    return dict(sorted(found.items(), key=lambda item: (-item[1], *_parts(item[0]))))


def _parts(line: str) -> tuple[str, int]:
    """Return the file and the number of a line."""
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


def kernel_resources(records: Sequence[Record]) -> dict[str, Record]:
    """Name of a GPU kernel -> its newest `kernel_loaded` event."""
    return {r["data"]["name"]: r for r in records if r["event"] == KernelLoaded.kind}


def costs_of_lines(kernels: Sequence[KernelCost]) -> list[LineCost]:
    """Return the cost of each line, the most expensive first.

    Of lines that the same kernels compute, the one with more time alone comes first, and then the
    one with more nodes.
    """
    found: dict[tuple[str, str], LineCost] = {}
    for line, cost in _by_line(kernels):
        made = found.setdefault(
            (line, cost.device), LineCost(line, _source(line), cost.device, 0.0, 0.0, 0.0, 0, [])
        )
        made.nodes += cost.lines[line]
        made.seconds += cost.seconds
        made.share += cost.share
        if len(cost.lines) == 1:
            made.alone += cost.seconds
        if cost.name not in made.kernels:
            made.kernels.append(cost.name)
    return sorted(
        found.values(), key=lambda c: (c.device != "cuda", -c.seconds, -c.alone, -c.nodes)
    )


def _by_line(kernels: Sequence[KernelCost]) -> Iterator[tuple[str, KernelCost]]:
    for cost in kernels:
        for line in cost.lines:
            yield line, cost


def _source(line: str) -> str:
    return linecache.getline(*_parts(line)).strip()
