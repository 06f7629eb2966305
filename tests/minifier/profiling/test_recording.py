"""What `run --profile` records in the process of a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import codecache, config

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import KernelLoaded
from tcdebug.minifier.profiling.calibration import copy_speeds, event_seconds
from tcdebug.minifier.profiling.inductor_profiling import kernels_traceable
from tcdebug.minifier.profiling.recording import ProfileRecording, StepCount, recorded
from tcdebug.minifier.profiling.triton_resources import loaded_kernels
from tcdebug.reading.run_dir import read


def test_steps_are_calls_of_the_frame_that_runs_first_and_the_first_is_not_counted() -> None:
    ended: list[int] = []
    count = StepCount(2, lambda: ended.append(count.calls))
    for frame in "010101010":
        count.called(frame)
    assert count.frame == "0"
    assert ended == [4]  # when the step after the second measured one begins


def test_a_profile_ends_after_its_steps_and_is_written_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path, own=True)
    with recorded(tmp_path, log, steps=1) as recording:
        torch._dynamo.reset()
        compiled = torch.compile(torch.sin, backend=recording.count.wrap("eager"))
        for _ in range(2):
            compiled(torch.ones(3))
        assert recording.running
        compiled(torch.ones(3))
        assert not recording.running
    (told,) = [r["data"] for r in read(tmp_path / "events.jsonl") if r["event"] == "profile"]
    assert (told["frame"], told["calls"], told["steps"]) == ("0", 3, 1)
    events = json.loads((tmp_path / told["trace"]).read_text())["traceEvents"]
    assert sum(e["name"] == "aten::sin" and e["cat"] == "cpu_op" for e in events) >= 2


def test_a_profile_of_nothing_is_written_too(tmp_path: Path) -> None:
    log = EventLog(tmp_path, own=True)
    recording = ProfileRecording(tmp_path, log, 1)
    recording.start()
    recording.stop()
    recording.stop()
    (told,) = [r["data"] for r in read(tmp_path / "events.jsonl") if r["event"] == "profile"]
    assert (told["frame"], told["calls"]) == ("", 0)


def test_copies_and_events_have_a_speed_and_a_cost() -> None:
    assert copy_speeds()["cpu"] > 1e7
    operator, ranged = event_seconds()
    assert 0 <= operator < 1
    assert 0 < ranged < 1


@pytest.fixture
def graph() -> Callable[[int], Any]:
    """Make a graph whose only node came from a line of the program."""

    def make(line: int) -> Any:
        graph = torch.fx.Graph()
        graph.output(graph.placeholder("x"))
        for node in graph.nodes:
            node.meta["stack_trace"] = f'  File "model.py", line {line}, in f\n'
        return torch.fx.GraphModule({}, graph)

    return make


def test_the_key_of_a_graph_depends_on_its_lines_only_while_it_is_profiled(
    graph: Callable[[int], Any],
) -> None:
    def key(line: int) -> str:
        details = codecache.FxGraphHashDetails(graph(line), [], {}, [])
        pickler: Any = codecache.FxGraphCachePickler(graph(line))
        found: str = pickler.get_hash(details)
        return found

    plain = key(1)
    assert key(2) == plain
    with kernels_traceable(EventLog(None)):
        assert len({plain, key(1), key(2)}) == 3
        assert key(1) == key(1)
        assert config.cpp.enable_kernel_profile
    assert key(1) == plain
    assert not config.cpp.enable_kernel_profile


def test_resources_of_triton_kernels_are_read_from_inductors_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch has such objects on a GPU only; tests/device checks the real ones."""
    setting = SimpleNamespace(kwargs={"XBLOCK": 64, "R0_BLOCK": 8, "other": 1}, num_warps=4)
    launcher = SimpleNamespace(config=setting, n_regs=40, n_spills=3, shared=128)
    module = ModuleType("generated")
    module.__dict__["triton_red_fused_sum_0"] = SimpleNamespace(launchers=[launcher])
    module.__dict__["triton_poi_unknown"] = SimpleNamespace(launchers=[SimpleNamespace()])
    monkeypatch.setattr(sys.modules[codecache.__name__].PyCodeCache, "modules", [module])
    assert list(loaded_kernels()) == [
        KernelLoaded("triton_red_fused_sum_0", {"x": 64, "r0_": 8}, 4, 40, 12, 128)
    ]
