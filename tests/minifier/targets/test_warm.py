"""Preparations for a first compile by inductor never end a search."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch._inductor.fx_passes import pre_grad

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.targets.inductor.warm import warm_up_for_devices
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
