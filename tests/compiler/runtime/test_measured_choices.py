"""The search for the fastest way to write a CPU kernel."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import assert_as_eager, compiled
from stages import capture

from tcdebug.compiler.codegen.cpp.source import CppSource, write_cpp
from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.runtime import measured_choices
from tcdebug.compiler.runtime.build import BuildError
from tcdebug.compiler.runtime.measured_choices import descend, tuned

ROWS = torch.randn(300, 200, generator=torch.Generator().manual_seed(0))


def source_of(function: Callable[..., Any], *inputs: Any, gate: Gate) -> CppSource:
    (schedule,) = capture(function, *inputs).schedules
    return write_cpp(schedule.kernels(), schedule.graph.buffers(), gate)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def prefer(*slow: str) -> Callable[..., Callable[[Sequence[KernelCall]], Sequence[float]]]:
    """A measurement in which each of some texts in the source of a kernel costs a second."""

    def measure(*_: Any) -> Callable[[Sequence[KernelCall]], Sequence[float]]:
        return lambda calls: [1.0 + sum(text in call.source for text in slow) for call in calls]

    return measure


def logged(folder: Path, run: str = "run") -> dict[str, Any]:
    """Options that measure, keep the results in a folder, and log the run in it."""
    return {
        "autotune": True, "log": True, "cache_dir": folder / "cache", "run_dir": folder / run,
    }  # fmt: skip


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    (path,) = folder.glob("events*.jsonl")
    return [e for e in map(json.loads, path.read_text().splitlines()) if e["event"] == kind]


def test_the_search_leaves_out_what_costs_time_and_nothing_else() -> None:
    gate = Gate(Toggles())
    source = source_of(softmax, ROWS, gate=gate)
    (call,) = source.calls.values()
    assert "scratch_" in call.source
    assert "#pragma omp parallel" in call.source
    measure = prefer("scratch_", "#pragma omp parallel")()
    left_out, seconds = descend(call, source.buffers, gate, measure)
    assert left_out == {"codegen.parallelize", "codegen.scratch"}
    assert seconds[""] == 3.0
    assert seconds["codegen.parallelize,codegen.scratch"] == 1.0


def test_the_cost_model_keeps_its_choices_unless_another_is_clearly_faster() -> None:
    gate = Gate(Toggles())
    source = source_of(softmax, ROWS, gate=gate)
    (call,) = source.calls.values()

    def almost_equal(calls: Sequence[KernelCall]) -> Sequence[float]:
        return [1.0, *(0.96 for _ in calls[1:])]

    assert descend(call, source.buffers, gate, almost_equal)[0] == frozenset()


def test_a_unit_that_is_off_stays_off() -> None:
    gate = Gate(Toggles.parse(["codegen.scratch"]))
    source = source_of(softmax, ROWS, gate=gate)
    (call,) = source.calls.values()
    tried: list[str] = []

    def measure(calls: Sequence[KernelCall]) -> Sequence[float]:
        tried.extend(c.source for c in calls)
        return [1.0] * len(calls)

    descend(call, source.buffers, gate, measure)
    assert len(tried) > 1
    assert not any("scratch_" in text for text in tried)


def test_what_was_measured_is_built_and_is_known_in_the_next_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_choices, "_measure", prefer("scratch_"))
    for name, measured in (("first", True), ("second", False)):
        torch._dynamo.reset()
        run = compiled(softmax, options=logged(tmp_path, name))
        assert_as_eager(run, softmax, [ROWS])
        (event,) = events_of(tmp_path / name, "choices")
        assert event["data"]["left_out"] == ["codegen.scratch"]
        assert bool(event["data"]["microseconds"]) is measured
    sources = [path.read_text() for path in (tmp_path / "cache").rglob("*.cpp")]
    (kernel,) = (text for text in sources if "Python.h" not in text)
    assert "scratch_" not in kernel


PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "rows": (softmax, [ROWS]),
    "an input that is updated": (lambda x: x.add_(1).sum(), [ROWS]),
    "an index": (lambda x, i: x[i].exp(), [ROWS, torch.arange(300).flip(0)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_measured_kernels_are_as_right_as_others(name: str, tmp_path: Path) -> None:
    function, inputs = PROGRAMS[name]
    torch._dynamo.reset()
    assert_as_eager(compiled(function, options=logged(tmp_path)), function, inputs)
    assert any(event["data"]["microseconds"] for event in events_of(tmp_path / "run", "choices"))


def never(*_: Any) -> Callable[[Sequence[KernelCall]], Sequence[float]]:
    def measure(_: Sequence[KernelCall]) -> Sequence[float]:
        raise AssertionError("measured")

    return measure


def test_dynamic_sizes_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_choices, "_measure", never)
    torch._dynamo.reset()
    run = compiled(softmax, dynamic=True, options={"autotune": True, "cache_dir": tmp_path})
    assert_as_eager(run, softmax, [ROWS])


def test_a_limit_on_decisions_is_not_mixed_with_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_choices, "_measure", never)
    gate = Gate(Toggles.parse(["codegen:3"]))
    source = source_of(softmax, ROWS, gate=gate)
    options = Options(autotune=True, cache_dir=tmp_path)
    assert tuned(source, gate, options, EventLog(None)) is source


def test_a_kernel_that_reports_an_error_on_zeros_keeps_its_choices(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return 7 // x

    x = torch.arange(1, 200_001)
    torch._dynamo.reset()
    assert_as_eager(compiled(function, options=logged(tmp_path)), function, [x])
    (event,) = events_of(tmp_path / "run", "choices")
    assert event["data"]["left_out"] == []
    assert event["data"]["microseconds"] == {}


def test_a_version_that_does_not_build_is_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Callable[[Sequence[KernelCall]], Sequence[float]]:
        def measure(_: Sequence[KernelCall]) -> Sequence[float]:
            raise BuildError("g++ exited with 1")

        return measure

    monkeypatch.setattr(measured_choices, "_measure", broken)
    torch._dynamo.reset()
    assert_as_eager(compiled(softmax, options=logged(tmp_path)), softmax, [ROWS])
    (event,) = events_of(tmp_path / "run", "fallback")
    assert event["data"]["reason"] == "g++ exited with 1"
