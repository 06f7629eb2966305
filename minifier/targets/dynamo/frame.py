"""Frames: a function that Dynamo is about to capture asks the gate, once for each code object."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy
from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
from torch._dynamo.types import ConvertFrameReturn

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.targets.dynamo.source_line import shown_path
from tcdebug.minifier.targets.interception import OPTIMIZE

CAPTURE = Patch("torch._dynamo.convert_frame", "_compile", "no dynamo.frame.* is a unit")
PATCHES = (CAPTURE,)

RESUMED = re.compile(rf"{TORCH_DYNAMO_RESUME_IN_PREFIX}_(?P<function>.+)_at_(?P<line>\d+)$")
"""The name of the function in which Dynamo puts the rest of a frame after a graph break."""


@contextlib.contextmanager
def frames(gate: Gate, log: EventLog, cut: set[CodeType]) -> Iterator[None]:
    """Every frame asks before it is captured; refused, it runs in eager and what it calls asks.

    Of the frames that are `cut`, which may be there only after they were captured, the rest runs
    in eager with all that it calls.
    """
    answers: dict[CodeType, bool] = {}

    def asking(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def capture(code: CodeType, *args: Any, **kwargs: Any) -> Any:
            if code not in answers:
                function, line = function_of(code)
                place = f"{shown_path(code)}:{line or code.co_firstlineno}"
                subject = f"{place}, resumed" if line else place
                answers[code] = gate.allows(f"dynamo.frame.{function}", subject)
            if not answers[code]:
                return ConvertFrameReturn(skip_reason="switched off by tcdebug")
            result = original(code, *args, **kwargs)
            if code in cut:
                now = _FrameAction.SKIP if result.guarded_code is None else _FrameAction.DEFAULT
                result.frame_exec_strategy = _FrameExecStrategy(now, _FrameAction.SKIP)
            return result

        return capture

    with patched(CAPTURE, asking, log):
        yield


def function_of(code: CodeType) -> tuple[str, int | None]:
    """The name of the function that code belongs to, and the line if it resumes there."""
    name, line = code.co_name, None
    while found := RESUMED.match(name):
        name, line = found["function"], int(found["line"]) if line is None else line
    return name, line


@contextlib.contextmanager
def graph_breaks_allowed(log: EventLog) -> Iterator[None]:
    """torch.compile(fullgraph=True) allows graph breaks in this block."""

    def tolerant(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def optimize(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **{**kwargs, "nopython": False})

        return optimize

    with patched(OPTIMIZE, tolerant, log):
        yield
