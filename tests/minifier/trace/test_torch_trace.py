"""torch's structured trace of a running program as events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tcdebug.compiler import seams
from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.trace.torch_trace import traced
from tcdebug.reading.run_dir import Record, read


def broken_and_sized(x: torch.Tensor, n: int) -> torch.Tensor:
    """Has a graph break at a print, and recompiles for another n."""
    y = torch.relu(x * n)
    print("", end="")  # noqa: T201 # a graph break
    return y.sum()


@pytest.fixture
def records(tmp_path: Path) -> Any:
    """Return a runner: records(backend) runs `broken_and_sized` twice and returns its events."""

    def run(backend: str) -> list[Record]:
        torch._dynamo.reset()
        with traced(EventLog(tmp_path, own=True)):
            compiled = torch.compile(broken_and_sized, backend=backend)
            compiled(torch.ones(4, 4), 2)
            compiled(torch.ones(4, 4), 3)
        return list(read(tmp_path / "events.jsonl"))

    return run


def of(records: list[Record], kind: str) -> list[Record]:
    """Return the events of a kind."""
    return [r for r in records if r["event"] == kind]


def test_a_graph_break_has_its_line_its_reason_and_what_to_do(records: Any) -> None:
    breaks = of(records("aot_eager"), "graph.break")
    assert {b["user_loc"]["filename"] for b in breaks} == {__file__}
    assert {b["user_loc"]["line"] for b in breaks} == {20}
    assert "print" in breaks[0]["data"]["reason"]
    assert "Traceback" not in breaks[0]["data"]["reason"]


def test_a_recompile_has_the_guard_that_failed_and_the_value_that_changed(records: Any) -> None:
    found = records("aot_eager")
    first = of(found, "recompile")[0]
    assert first["compile_id"].endswith("/1")
    assert "n == 2" in first["data"]["reason"]
    assert first["user_loc"]["line"] == 19
    change = of(found, "size.changed")[0]["data"]
    assert (change["name"], change["before"], change["after"]) == ("L['n']", "2", "3")


def test_guards_and_metrics_of_each_compile_are_recorded(records: Any) -> None:
    found = records("aot_eager")
    guards = of(found, "guard.summary")[0]["data"]
    assert any(g == "EQUALS_MATCH: L['n'] == 2" for g in guards["guards"])
    assert any(g.startswith("TENSOR_MATCH: L['x'] is float32") for g in guards["guards"])
    assert guards["total"] > len(guards["guards"])
    metrics = of(found, "compile.metrics")
    assert metrics[0]["data"]["frame"] == "broken_and_sized"
    assert metrics[0]["data"]["seconds"] > 0
    assert {"frame", "dynamo", "backend", "guards"} <= {r["stage"] for r in of(found, "stage.end")}


def test_inductor_leaves_its_graphs_kernels_and_caches(records: Any, tmp_path: Path) -> None:
    found = records("inductor")
    assert {"dynamo_output_graph", "inductor_output_code"} <= {
        r["stage"] for r in of(found, "stage.text")
    }
    kernel = of(found, "kernel")[0]
    assert kernel["data"]["name"].startswith("cpp_fused")
    assert kernel["data"]["moved"] == 4 * (16 + 16)
    assert "async_compile" in (tmp_path / kernel["data"]["source"]).read_text()
    assert {r["stage"] for r in of(found, "cache")} == {"inductor", "aot_autograd"}


def test_the_embedded_compiler_leaves_breaks_and_recompiles_to_the_trace(records: Any) -> None:
    found = records("tcdebug")
    assert len(of(found, "graph.break")) == 2
    assert len({r["compile_id"] for r in of(found, "recompile")}) == len(of(found, "recompile"))


def test_tracing_is_reported_as_on_only_during_the_block(tmp_path: Path) -> None:
    with traced(EventLog(tmp_path, own=True)):
        assert seams.traced()
    assert not seams.traced()
