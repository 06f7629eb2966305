"""Preparations for a first compile by inductor never end a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import lowering
from torch._inductor.fx_passes import pre_grad

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.targets.backends import Backend
from tcdebug.minifier.targets.inductor.warm import register_before_forks, warm_up_for_devices
from tcdebug.reading.run_dir import read


def test_patterns_that_cannot_be_registered_yet_are_a_fallback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lazy_init() -> None:
        raise NotImplementedError("no tracing here")

    monkeypatch.setattr(pre_grad, "lazy_init", lazy_init)
    warm_up_for_devices(EventLog(tmp_path, own=True))
    (said,) = [r["data"] for r in read(tmp_path / "events.jsonl") if r["event"] == "fallback"]
    assert said["reason"] == (
        "inductor's patterns could not be registered: NotImplementedError: no tracing here"
    )


@pytest.mark.parametrize(("gpus", "registers"), [(0, True), (1, False)])
def test_a_process_whose_forks_may_use_a_gpu_registers_no_patterns(
    gpus: int, registers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(pre_grad, "lazy_init", lambda: called.append("lazy_init"))
    register_before_forks()
    assert called == ["lazy_init"] * registers


def defined_here(module: torch.fx.GraphModule, inputs: Any) -> Any:
    """A backend of a file that mentions inductor."""
    return module.forward


@pytest.mark.parametrize(
    ("backend", "compiles"),
    [
        (Backend("compile_fx", "compile_fx"), True),
        (Backend("aotinductor", "aotinductor"), True),
        (Backend(defined_here, "defined_here"), True),
        (Backend(torch.nn.ReLU(), "ReLU"), False),
        (Backend("aot_eager", "aot_eager"), False),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_may_compile_with_inductor_builds_its_headers_before_candidates_are_timed(
    backend: Backend, compiles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lowering that raises shows whether something was compiled."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sum.dim_IntList, broken)
    backend.warm_up(EventLog(tmp_path, own=True))
    said = "".join(file.read_text() for file in tmp_path.glob("events*.jsonl"))
    assert ("inductor cannot compile even a small sum" in said) == compiles
