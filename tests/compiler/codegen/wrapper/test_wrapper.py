"""The source of a wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from judge import assert_as_eager, compiled
from programs import f32
from stages import capture

from tcdebug.compiler.codegen.cpp.source import write_cpp
from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource, WrapperWriter
from tcdebug.compiler.gate.gate import Gate


def wrapper(function: Callable[..., Any], *inputs: Any, direction: str) -> WrapperSource:
    """The wrapper of the only graph of a function."""
    (schedule,) = capture(function, *inputs).schedules
    calls = write_cpp(schedule.kernels(), schedule.graph.buffers(), Gate()).calls
    return WrapperWriter(schedule, calls, Gate(), direction=direction).write()


def viewed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x @ x).view(2, 8), (x[:1] @ x[:, :1]).view(()), (x @ x[:, :1]).expand(2, 4, 3)


def test_sizes_of_a_view_are_passed_as_separate_arguments() -> None:
    text = wrapper(viewed, f32(4, 4), direction="inference").text
    for call in ("view_default(mm, 2, 8)", "view_default(mm_1, [])", "(mm_2, 2, 4, 3)"):
        assert call in text
    assert_as_eager(compiled(viewed), viewed, [f32(4, 4)])


def test_only_a_graph_that_calls_operators_disables_gradients() -> None:
    alone = wrapper(lambda x: x.exp(), f32(4, 4), direction="inference").direct
    assert alone.startswith("def call(arg0_1):\n")
    assert "grad_enabled" not in alone
    assert "set_grad_enabled(False)" in wrapper(viewed, f32(4, 4), direction="inference").direct
    assert wrapper(viewed, f32(4, 4), direction="forward").direct == ""
