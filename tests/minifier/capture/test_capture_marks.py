from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.comptime import comptime

from tcdebug.minifier.capture import capture_marks
from tcdebug.minifier.capture.capture_marks import (
    CaptureMarks,
    Patience,
    capturing_for,
    no_other_capture,
    remove_marks,
)
from tcdebug.minifier.processes.fork import fork
from tcdebug.minifier.processes.process import Limits, finished


def test_a_capture_is_marked_while_it_lasts(tmp_path: Path) -> None:
    seen: list[tuple[bool, float]] = []
    active = [True]
    marks = CaptureMarks(tmp_path, lambda: active[0])

    def look(context: object) -> None:
        mark = tmp_path / f"capturing-{os.getpid()}"
        if mark.exists():
            os.utime(mark, (0, 0))
        seen.append((mark.exists(), *capturing_for(tmp_path)))

    def function(x: torch.Tensor) -> torch.Tensor:
        comptime(look)
        return x + 1

    torch._dynamo.reset()
    marks.watch()
    marks.watch()
    try:
        torch.compile(function, backend="eager")(torch.ones(2))
        there, age, what = seen.pop(0)
        assert there and age > 1e9, "the mark has the age of the capture"
        assert what == "a capture by Dynamo"
        assert capturing_for(tmp_path) == (0.0, "")
        assert not list(tmp_path.iterdir())

        active[0] = False  # as in a forked candidate, which has a limit of its own
        torch.compile(function, backend="eager", dynamic=True)(torch.ones(3))
        assert seen.pop(0) == (False, 0.0, "")
    finally:
        torch._dynamo.reset()


def test_a_capture_that_stays_at_a_line_is_endless_and_says_which_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, found = [100.0], []
    patience = Patience(tmp_path, 1000.0, still=20.0)
    monkeypatch.setattr(capture_marks.time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds
        os.utime(tmp_path / f"capturing-{os.getpid()}", (time.time() - now[0],) * 2)
        found.append((patience.endless(), patience.place.rpartition("/")[2], patience.stays))

    def look(context: object) -> None:
        for seconds in (10, 10, 15, 10):
            wait(seconds)

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        comptime(look)
        return x + 1

    torch._dynamo.reset()
    CaptureMarks(tmp_path, lambda: True).watch()
    try:
        torch.compile(function, backend="eager")(torch.ones(2))
    finally:
        torch._dynamo.reset()
    first = function.__code__.co_firstlineno
    here = f"test_capture_marks.py:{first + 2} in function: comptime(look)"
    assert found[:3] == [("", "", False), ("", here, False), ("", here, False)]
    assert found[3:] == [("a capture by Dynamo", here, True)]
    assert not list(tmp_path.iterdir())


def test_marks_of_processes_that_were_ended_are_removed(tmp_path: Path) -> None:
    mark = tmp_path / "capturing-1"
    mark.touch()
    os.utime(mark, (0, 0))
    assert capturing_for(tmp_path)[0] > 1e9
    remove_marks(tmp_path)
    assert capturing_for(tmp_path) == (0.0, "")


def test_a_candidate_that_is_forked_while_a_thread_captures_does_not_wait_for_it() -> None:
    begun, order = threading.Event(), []

    def slow(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        begun.set()
        time.sleep(0.3)
        order.append("captured")
        return graph.forward

    def compiles(_: object) -> bytes:
        torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
        return b"compiled"

    capture = threading.Thread(
        target=lambda: torch.compile(lambda x: x + 1, backend=slow)(torch.ones(2))
    )
    capture.start()
    assert begun.wait(60.0)
    with no_other_capture():
        order.append("forked")
        ended = finished(fork(compiles, Limits(seconds=60.0)))
    capture.join()
    assert (ended.answer, ended.timed_out) == (b"compiled", False)
    assert order == ["captured", "forked"]


def test_any_thread_of_a_candidate_may_capture() -> None:
    """On a GPU, backward is compiled in a thread of autograd."""

    def compiles(_: object) -> bytes:
        capture = threading.Thread(
            target=lambda: torch.compile(lambda x: x * 3, backend="eager")(torch.ones(2)),
            daemon=True,
        )
        capture.start()
        capture.join(30.0)
        return b"waits" if capture.is_alive() else b"compiled"

    with no_other_capture():
        ended = finished(fork(compiles, Limits(seconds=60.0)))
    assert ended.answer == b"compiled"
