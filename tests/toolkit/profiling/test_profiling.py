"""Traces as torch.profiler writes them, joined with the events of graphs: what each line costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tcdebug.profiling.graph_calls import compiled_graphs
from tcdebug.profiling.process_profile import process_profile
from tcdebug.profiling.profile import KernelCost, Profile
from tcdebug.profiling.profiling import profile_of
from tcdebug.profiling.trace_spans import trace_of

KEY = "fabc"
COPY = {"cpu": 1e9, "cuda": 1e12}


class Timeline:
    """Writes the events of a thread one after the other. Times are in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0.0

    def span(self, name: str, length: float, *inside: Any, cat: str = "cpu_op") -> None:
        """A range of this length in which `inside` are called."""
        event: dict[str, Any] = {
            "ph": "X", "cat": cat, "name": name, "ts": self.now, "dur": length, "pid": 1, "tid": 1,
        }  # fmt: skip
        self.events.append(event)
        end = self.now + length
        for make in inside:
            make()
        self.now = end

    def op(self, name: str, length: float, *inside: Any, cat: str = "cpu_op") -> Any:
        """The same, to be called later."""
        return lambda: self.span(name, length, *inside, cat=cat)

    def launch(self, correlation: int, kernel: str, length: float, **args: Any) -> Any:
        """A launch of a GPU kernel, and the kernel, which runs later."""

        def make() -> None:
            self.span("cuLaunchKernel", 1, cat="cuda_driver")
            self.events[-1]["args"] = {"correlation": correlation}
            gpu = {"ph": "X", "cat": "kernel", "name": kernel, "ts": self.now + 500, "dur": length}
            found = {
                "correlation": correlation,
                **{k.replace("_", " "): v for k, v in args.items()},
            }
            self.events.append({**gpu, "pid": 0, "tid": 7, "args": found})

        return make

    def call(self, *steps: Any, length: float = 100, compile_id: str = "0/0") -> None:
        """A call of a graph of inductor."""
        graph = self.op(f"## Call CompiledFxGraph {KEY} ##", length - 10, *steps)
        self.span(f"Torch-Compiled Region: {compile_id}", length, graph)


def step(position: int, name: str, lines: Sequence[str], moved: int = 0) -> dict[str, Any]:
    data = {
        "position": position, "name": name, "generated": "::" not in name,
        "nodes": [f"node_{position}"], "node_lines": [*lines[:1]], "lines": list(lines),
        "moved": moved,
    }  # fmt: skip
    return {
        "event": "graph.step", "compile_id": "0/0", "direction": "forward", "data": data,
    }  # fmt: skip


def events(*steps: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from steps
    key = {"verdict": "hit", "key": KEY, "seconds": 0.0}
    yield {
        "event": "cache", "stage": "inductor", "compile_id": "0/0", "direction": "forward",
        "data": key,
    }  # fmt: skip


def profile(
    timeline: Timeline, records: Sequence[Mapping[str, Any]], *, frame: str = "0", steps: int = 20
) -> Profile:
    recorded = {
        "frame": frame, "steps": steps, "copy_speeds": COPY, "operator_seconds": 1e-6,
        "range_seconds": 2e-6,
    }  # fmt: skip
    graphs = compiled_graphs([dict(r) for r in records])
    found = process_profile(trace_of(timeline.events), recorded, graphs)
    return profile_of([dict(r) for r in records], graphs, [found])


def named(found: Profile, name: str) -> KernelCost:
    (cost,) = [cost for cost in found.kernels if cost.name == name]
    return cost


def microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def test_the_first_call_is_left_out_and_the_dearest_line_comes_first() -> None:
    timeline = Timeline()
    for length in (50, 20, 30):
        timeline.call(
            timeline.op("graph_0_cpp_fused_add_0", 5),
            timeline.op("graph_0_cpp_fused_exp_1", length),
        )
    records = [
        *events(
            step(0, "cpp_fused_add_0", ["m.py:1"]), step(1, "cpp_fused_exp_1", ["m.py:2"], 5000)
        )
    ]
    found = profile(timeline, records)
    assert (found.steps, found.warm_up) == (2, 1)
    assert [(c.line, microseconds(c.seconds)) for c in found.lines] == [
        ("m.py:2", 50),
        ("m.py:1", 10),
    ]
    cost = named(found, "cpp_fused_exp_1")
    assert (cost.calls, cost.moved, cost.nodes) == (2, 5000, ["node_1"])
    assert cost.bandwidth == pytest.approx(5000 / 25e-6)
    assert cost.of_copy == pytest.approx(0.2)
    assert cost.share == pytest.approx(50 / 60)


def test_only_as_many_steps_as_wanted_are_measured() -> None:
    timeline = Timeline()
    for length in (1, 2, 3, 40):
        timeline.call(timeline.op("graph_0_cpp_fused_0", length))
    found = profile(timeline, [*events(step(0, "cpp_fused_0", ["m.py:1"]))], steps=2)
    assert found.steps == 2
    assert microseconds(named(found, "cpp_fused_0").seconds) == 5
    assert found.step_seconds == pytest.approx(100e-6)


def test_the_only_call_of_a_graph_is_measured_and_a_note_says_so() -> None:
    timeline = Timeline()
    timeline.call(timeline.op("graph_0_cpp_fused_0", 7))
    found = profile(timeline, [*events(step(0, "cpp_fused_0", ["m.py:1"]))])
    assert (found.steps, found.warm_up) == (1, 0)
    assert found.notes == [
        "these graphs ran once, so their slower first call is measured: 0/0 forward"
    ]


def test_calls_of_the_same_operator_belong_to_their_lines_in_order() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.call(timeline.op("aten::mm", 10), timeline.op("aten::mm", 20))
    records = [*events(step(0, "aten::mm", ["m.py:1"]), step(1, "aten::mm", ["m.py:2"]))]
    found = profile(timeline, records)
    assert [(c.line, microseconds(c.seconds)) for c in found.lines] == [
        ("m.py:2", 20),
        ("m.py:1", 10),
    ]


def test_an_operator_that_ran_more_often_than_the_graph_calls_it_has_no_line() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.call(*(timeline.op("aten::mm", 10) for _ in range(3)))
    records = [*events(step(0, "aten::mm", ["m.py:1"]), step(1, "aten::mm", ["m.py:2"]))]
    found = profile(timeline, records)
    assert found.lines == []
    assert (named(found, "aten::mm").calls, named(found, "aten::mm").lines) == (3, {})


def test_a_fused_kernel_counts_for_each_of_its_lines_but_for_none_alone() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.call(timeline.op("cpp_fused_0", 10), timeline.op("cpp_1", 5))
    records = [*events(step(0, "cpp_fused_0", ["m.py:1", "m.py:2"]), step(1, "cpp_1", ["m.py:2"]))]
    found = profile(timeline, records)
    told = [(c.line, microseconds(c.seconds), microseconds(c.alone)) for c in found.lines]
    assert told == [("m.py:2", 15, 5), ("m.py:1", 10, 0)]


def test_the_work_of_torch_during_a_compile_is_not_measured() -> None:
    timeline = Timeline()
    for _ in range(2):
        timeline.call(timeline.op("cpp_0", 10))
        inside = timeline.op("aten::mul", 50)
        phase = timeline.op("_compile.compile_inner (dynamo_timed)", 60, inside)
        timeline.span("dynamo", 70, phase)
        timeline.span("aten::sum", 3)
    found = profile(timeline, [*events(step(0, "cpp_0", ["m.py:1"]))])
    assert [(c.name, c.kind) for c in found.kernels] == [
        ("cpp_0", "generated"),
        ("aten::sum", "eager"),
    ]


def test_gpu_kernels_belong_to_the_range_that_launched_them() -> None:
    timeline = Timeline()
    for number in (10, 20, 30):
        timeline.call(
            timeline.op(
                "triton_poi_fused_exp_0", 9,
                timeline.launch(
                    number, "triton_poi_fused_exp_0", 100, registers_per_thread=32,
                    shared_memory=64, **{"est._achieved_occupancy_%": 75},
                ),
            ),
            timeline.op("aten::mm", 9, timeline.launch(number + 1, "ampere_sgemm_128x64", 300)),
        )  # fmt: skip
    records = [
        *events(
            step(0, "triton_poi_fused_exp_0", ["m.py:1"], 10**8), step(1, "aten::mm", ["m.py:2"])
        ),
        {
            "event": "kernel_loaded",
            "data": {"name": "triton_poi_fused_exp_0", "registers": 40, "spilled": 16, "shared": 8},
        },
    ]
    found = profile(timeline, records)
    exp, mm = named(found, "triton_poi_fused_exp_0"), named(found, "aten::mm")
    assert (exp.device, exp.calls, microseconds(exp.mean_seconds)) == ("cuda", 2, 100)
    assert (exp.registers, exp.spilled, exp.shared, exp.occupancy) == (40, 16, 8, 0.75)
    assert exp.of_copy == pytest.approx(1.0)
    assert (mm.device_kernels, [*mm.lines]) == (["ampere_sgemm_128x64"], ["m.py:2"])
    assert [c.line for c in found.lines] == ["m.py:2", "m.py:1"]


def test_kernels_that_a_cuda_graph_replays_belong_to_their_lines_by_name() -> None:
    timeline = Timeline()
    for number in (10, 20):
        timeline.call(
            timeline.launch(number, "triton_poi_fused_exp_0", 100),
            timeline.launch(number + 1, "ampere_sgemm_128x64", 300),
        )
    records = [
        *events(step(0, "triton_poi_fused_exp_0", ["m.py:1"]), step(1, "aten::mm", ["m.py:2"]))
    ]
    found = profile(timeline, records)
    assert named(found, "triton_poi_fused_exp_0").lines == {"m.py:1": 1}
    assert named(found, "ampere_sgemm_128x64").lines == {}


def test_operators_between_graphs_belong_to_the_line_of_the_graph_break() -> None:
    timeline = Timeline()
    for _ in range(3):
        timeline.call(timeline.op("cpp_0", 10))
        timeline.span("aten::sort", 30)
        timeline.call(timeline.op("cpp_0", 10), compile_id="1/0")
        timeline.span("aten::sum", 5)
    broken = {
        "event": "graph.break", "compile_id": "0/0", "data": {"reason": ""},
        "user_loc": {"filename": "m.py", "line": 8, "name": "f"},
    }  # fmt: skip
    found = profile(timeline, [*events(step(0, "cpp_0", ["m.py:1"])), broken])
    assert named(found, "aten::sort").lines == {"m.py:8": 0}
    assert named(found, "aten::sort").where == "after a graph break"
    assert named(found, "aten::sum").lines == {}


def test_ranges_that_seem_to_overlap_because_times_are_rounded_are_nested() -> None:
    def event(name: str, start: float, length: float) -> dict[str, Any]:
        where = {"pid": 1, "tid": 1, "cat": "cpu_op", "ph": "X"}
        return {"name": name, "ts": start, "dur": length, **where}

    events = [event("a", 0, 10), event("b", 1, 9.001), event("c", 10.001, 5), event("d", 12, 1)]
    spans = {span.name: span for span in trace_of(events).host}
    parents = {name: span.parent and span.parent.name for name, span in spans.items()}
    assert parents == {"a": None, "b": "a", "c": None, "d": "c"}


def test_after_a_reset_graphs_with_the_same_id_keep_their_own_lines() -> None:
    first, second = [*events(step(0, "cpp_0", ["m.py:1"]))], [*events(step(0, "cpp_0", ["m.py:9"]))]
    second[-1]["data"]["key"] = "fother"
    timeline = Timeline()
    for key, length in ((KEY, 10), (KEY, 10), ("fother", 20), ("fother", 20)):
        graph = timeline.op(f"## Call CompiledFxGraph {key} ##", 40, timeline.op("cpp_0", length))
        timeline.span("Torch-Compiled Region: 0/0", 50, graph)
    found = profile(timeline, [*first, *second])
    assert [(c.line, microseconds(c.seconds)) for c in found.lines] == [
        ("m.py:9", 20),
        ("m.py:1", 10),
    ]


def test_a_graph_without_a_cache_key_is_found_by_its_kernels() -> None:
    timeline = Timeline()
    for _ in range(2):
        kernel = timeline.op("graph_0_cpp_fused_0", 5)
        timeline.span("## Call CompiledFxGraph None ##", 10, kernel)
    found = profile(timeline, [step(0, "cpp_fused_0", ["m.py:1"])], frame="")
    assert [c.graph for c in found.kernels] == ["0/0 forward"]
    two = [
        step(0, "cpp_fused_0", ["m.py:1"]),
        {**step(0, "cpp_fused_0", ["m.py:2"]), "compile_id": "1/0"},
    ]
    assert profile(timeline, two, frame="").lines == []


def test_a_script_without_a_compiled_graph_has_no_steps() -> None:
    timeline = Timeline()
    timeline.span("aten::mm", 10)
    found = profile(timeline, [], frame="")
    assert (found.steps, found.kernels) == (0, [])


def package_step(position: int, name: str) -> dict[str, Any]:
    """A step of a package: AOTInductor compiles it outside of Dynamo's compiles."""
    made = step(position, name, [f"m.py:{position + 1}"])
    return {**made, "compile_id": "", "direction": "inference"}


def test_the_steps_of_a_package_are_those_of_the_program_with_its_kernels() -> None:
    timeline = Timeline()
    for name in ("one.pt2", "two.pt2") * 2:
        kernels = [timeline.op(f"graph_0_cpp_fused_{name[:3]}_0", 5), timeline.op("aten::mm", 1)]
        timeline.span(f"tcdebug package {name}", 20, *kernels, cat="user_annotation")
    records = [
        *(package_step(0, "cpp_fused_one_0"), package_step(1, "aten::mm")),
        *(package_step(0, "cpp_fused_two_0"), package_step(3, "aten::mm")),
    ]
    found = profile(timeline, records, frame="tcdebug package one.pt2")
    costs = [(c.graph, c.name, [*c.lines], c.calls) for c in found.kernels]
    assert sorted(costs) == [
        ("package one.pt2", "aten::mm", ["m.py:2"], 1),
        ("package one.pt2", "cpp_fused_one_0", ["m.py:1"], 1),
        ("package two.pt2", "aten::mm", ["m.py:4"], 1),
        ("package two.pt2", "cpp_fused_two_0", ["m.py:1"], 1),
    ]
