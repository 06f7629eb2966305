"""Frames: Dynamo asks the gate once for each code object before it captures the function."""

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

CAPTURE = Patch("torch._dynamo.convert_frame", "_compile", "dynamo.frame.* cannot be switched off")
TRANSFORM = Patch(
    "torch._dynamo.symbolic_convert:InstructionTranslator",
    "_throw_if_in_functorch",
    "a function that torch.func calls in eager is not captured by itself",
)
PATCHES = (CAPTURE, TRANSFORM)

RESUMED = re.compile(rf"{TORCH_DYNAMO_RESUME_IN_PREFIX}_(?P<function>.+)_at_(?P<line>\d+)$")
"""The name of the function into which Dynamo puts the rest of a frame after a graph break."""


@contextlib.contextmanager
def frames(gate: Gate, log: EventLog, cut: set[CodeType]) -> Iterator[None]:
    """Ask about every frame before it is captured. A refused frame runs in eager; its callees ask.

    A frame that was `cut`, which is known only after its capture, runs the rest of its code in
    eager, including everything that the rest calls.
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
                return ConvertFrameReturn()
            result = original(code, *args, **kwargs)
            if code in cut:
                now = _FrameAction.SKIP if result.guarded_code is None else _FrameAction.DEFAULT
                result.frame_exec_strategy = _FrameExecStrategy(now, _FrameAction.SKIP)
            return result

        return capture

    with patched(CAPTURE, asking, log):
        yield


def function_of(code: CodeType) -> tuple[str, int | None]:
    """Return the name of the function that code belongs to, and the line at which it resumes."""
    name, line = code.co_name, None
    while found := RESUMED.match(name):
        name, line = found["function"], int(found["line"]) if line is None else line
    return name, line


@contextlib.contextmanager
def graph_breaks_allowed(log: EventLog) -> Iterator[None]:
    """Allow graph breaks in this block in spite of torch.compile(fullgraph=True)."""

    def tolerant(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def optimize(*args: Any, **kwargs: Any) -> Any:
            return original(*args, **{**kwargs, "nopython": False})

        return optimize

    with patched(OPTIMIZE, tolerant, log):
        yield


@contextlib.contextmanager
def transforms_allowed(log: EventLog) -> Iterator[None]:
    """Capture functions that a transform of torch.func calls in eager.

    Dynamo does so for the backend `eager`, which is the only one here, but does not recognise it
    if torch.compile did not pass it.
    """

    def tolerant(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def throw_if_in_functorch(self: Any) -> None:
            """Let the capture go on."""

        return throw_if_in_functorch

    with patched(TRANSFORM, tolerant, log):
        yield
