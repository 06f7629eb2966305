"""on_error="fallback": only the failing step is left out, with an event."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from judge import assert_same, compiled
from programs import f32
from torch import fx

from tcdebug.compiler.codegen.cpp.kernel import CppKernelWriter
from tcdebug.compiler.devices import cpu
from tcdebug.compiler.registry import REGISTRY

SIN = torch.ops.aten.sin.default


def function(x: torch.Tensor) -> torch.Tensor:
    return (torch.sin(x) @ x.t()).cos() + 1


def outcome(folder: Path, **options: Any) -> tuple[torch.Tensor, list[str]]:
    """The result of the function, and the fallbacks."""
    torch._dynamo.reset()
    options |= {"run_dir": str(folder / "run"), "cache_dir": str(folder / "cache"), "log": True}
    return compiled(function, options=options)(f32(4, 4)), fallbacks(folder)


def events_of(folder: Path, name: str) -> list[dict[str, Any]]:
    (path,) = folder.glob("run/events*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [e for e in events if e["event"] == name]


def fallbacks(folder: Path) -> list[str]:
    return [e["data"]["what"] for e in events_of(folder, "fallback")]


def raising(*args: Any) -> Any:
    raise ValueError("planted")


def test_nothing_falls_back_without_a_failure(tmp_path: Path) -> None:
    result, slower = outcome(tmp_path, on_error="fallback")
    assert slower == []
    assert_same(result, function(f32(4, 4)))


def test_decisions_name_their_graph_in_every_attempt(tmp_path: Path) -> None:
    outcome(tmp_path, on_error="fallback")
    directions = {e.get("direction") for e in events_of(tmp_path, "decision")}
    assert directions == {"capture", "inference", "joint"}


def test_a_failure_is_raised_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(REGISTRY.lowerings, SIN, raising)
    with pytest.raises(Exception, match=r"unit lower\.aten\.sin\.default.*planted"):
        outcome(tmp_path)


def test_a_lowering_that_raises_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(REGISTRY.lowerings, SIN, raising)
    result, slower = outcome(tmp_path, on_error="fallback")
    assert slower == ["compiled without lower.aten.sin.default"]
    assert_same(result, function(f32(4, 4)))


@pytest.mark.parametrize("stage", ["pregrad", "passes"])
def test_a_pass_that_corrupts_its_graph_and_raises_is_left_out(
    stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def spoils(graph: fx.Graph) -> bool:
        graph.erase_node(graph.output_node())
        raise ValueError("planted")

    table = REGISTRY.pregrad_passes if stage == "pregrad" else REGISTRY.aten_passes
    monkeypatch.setitem(table, f"{stage}.spoils", spoils)
    result, slower = outcome(tmp_path, on_error="fallback")
    assert slower == [f"compiled without {stage}.spoils"]
    assert_same(result, function(f32(4, 4)))


def test_only_the_kernel_that_does_not_build_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = CppKernelWriter.write

    def broken(self: CppKernelWriter) -> str:
        text = right(self)
        return text.replace("sin_(", "no_such_function(")

    monkeypatch.setattr(CppKernelWriter, "write", broken)
    result, slower = outcome(tmp_path, on_error="fallback")
    (what,) = slower
    assert what.startswith("compiled without site:")
    assert_same(result, function(f32(4, 4)))
    last = max(tmp_path.glob("run/ir/*wrapper*.py"), key=lambda p: p.stat().st_mtime_ns)
    assert "o_aten_sin_default(" in last.read_text()
    assert "o_aten_cos_default(" not in last.read_text()


def test_without_a_compiler_everything_is_left_to_aten(tmp_path: Path) -> None:
    result, slower = outcome(tmp_path, on_error="fallback", compiler="no-such-compiler")
    assert slower == ["compiled without lower"]
    assert_same(result, function(f32(4, 4)))


# -- background ---------------------------------------------------------------------------------


def test_a_graph_runs_in_eager_until_its_kernels_are_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built, may_build = threading.Event(), threading.Event()
    right = cpu.build

    def slow(*args: Any) -> Any:
        may_build.wait(60)
        try:
            return right(*args)
        finally:
            built.set()

    monkeypatch.setattr(cpu, "build", slow)
    torch._dynamo.reset()
    options = {"background": True, "cache_dir": str(tmp_path / "cache")}
    f = compiled(function, options=options)
    assert_same(f(f32(4, 4)), function(f32(4, 4)))
    assert not built.is_set()
    may_build.set()
    assert built.wait(60)
    for _ in range(3):
        assert_same(f(f32(4, 4)), function(f32(4, 4)))
