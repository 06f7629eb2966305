from __future__ import annotations

import os
from pathlib import Path

import torch
from torch._dynamo.comptime import comptime

from tcdebug.minifier.capture.capture_marks import CaptureMarks, capturing_for, remove_marks


def test_a_capture_is_marked_while_it_lasts(tmp_path: Path) -> None:
    seen: list[tuple[bool, float]] = []
    active = [True]
    marks = CaptureMarks(tmp_path, lambda: active[0])

    def look(context: object) -> None:
        mark = tmp_path / f"capturing-{os.getpid()}"
        if mark.exists():
            os.utime(mark, (0, 0))
        seen.append((mark.exists(), capturing_for(tmp_path)))

    def function(x: torch.Tensor) -> torch.Tensor:
        comptime(look)
        return x + 1

    torch._dynamo.reset()
    marks.watch()
    marks.watch()
    try:
        torch.compile(function, backend="eager")(torch.ones(2))
        assert seen.pop(0)[1] > 1e9, "the mark has the age of the capture"
        assert capturing_for(tmp_path) == 0.0
        assert not list(tmp_path.iterdir())

        active[0] = False  # as in a forked candidate, which has a limit of its own
        torch.compile(function, backend="eager", dynamic=True)(torch.ones(3))
        assert seen.pop(0) == (False, 0.0)
    finally:
        torch._dynamo.reset()


def test_marks_of_processes_that_were_ended_are_removed(tmp_path: Path) -> None:
    mark = tmp_path / "capturing-1"
    mark.touch()
    os.utime(mark, (0, 0))
    assert capturing_for(tmp_path) > 1e9
    remove_marks(tmp_path)
    assert capturing_for(tmp_path) == 0.0
