"""Frames: Dynamo asks the gate once for each code object before it captures the function."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NoReturn

import torch
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy
from torch._dynamo import config
from torch._dynamo.exc import Unsupported, UserError
from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
from torch._dynamo.types import ConvertFrameReturn

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.processes.job import CANNOT_END, NO_END
from tcdebug.minifier.targets.dynamo.source_line import shown_path
from tcdebug.minifier.targets.interception import OPTIMIZE

CAPTURE = Patch("torch._dynamo.convert_frame", "_compile", "dynamo.frame.* cannot be switched off")
TRANSFORM = Patch(
    "torch._dynamo.symbolic_convert:InstructionTranslator",
    "_throw_if_in_functorch",
    "a function that torch.func calls in eager is not captured by itself",
)
OFFER = Patch(
    "torch._dynamo.convert_frame:ConvertFrameAssert",
    "__call__",
    "a frame that is off may not call generators under fullgraph=True",
)
RELEVANT = Patch(
    "torch._dynamo.convert_frame",
    "has_tensor_in_frame",
    "functions without tensors that a frame which is off calls are not captured by themselves",
)
PATCHES = (CAPTURE, TRANSFORM, OFFER, RELEVANT)

RESUMED = re.compile(rf"{TORCH_DYNAMO_RESUME_IN_PREFIX}_(?P<function>.+)_at_(?P<line>\d+)$")
"""The name of the function into which Dynamo puts the rest of a frame after a graph break."""


OF_OTHERS = (
    os.path.join(os.path.dirname(torch.__file__), ""),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("platstdlib"),
    "<",
)
"""How the files of code begin that is no program: torch, the standard library, generated code."""


@contextlib.contextmanager
def frames(gate: Gate, log: EventLog, cut: set[CodeType], broken: set[CodeType]) -> Iterator[None]:
    """Ask about every frame before it is captured. A refused frame runs in eager; its callees ask.

    A frame that was `cut`, which is known only after its capture, runs the rest of its code in
    eager, including everything that the rest calls. Functions of the program that a refused frame
    calls are captured even if they have no tensors, as they would be if Dynamo inlined them.

    If Dynamo cannot continue in eager where the graph of a frame is `broken`, such as where the
    rest would need a generator that has begun, it would run the whole frame in eager. That says
    nothing about what was captured, so the process ends.
    """
    answers: dict[CodeType, bool] = {}

    def refused() -> bool:
        return not all(answers.values())

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
            with config.patch(allow_empty_graphs=True) if refused() else contextlib.nullcontext():
                try:
                    result = original(code, *args, **kwargs)
                except (Unsupported, UserError):
                    if code in broken:
                        _leave()
                    raise
            if code in cut:
                now = _FrameAction.SKIP if result.guarded_code is None else _FrameAction.DEFAULT
                result.frame_exec_strategy = _FrameExecStrategy(now, _FrameAction.SKIP)
            return result

        return capture

    with patched(CAPTURE, asking, log), _callees_captured(refused, log):
        yield


def _leave() -> NoReturn:
    """End the process at once. The last line of its output says why."""
    sys.stdout.flush()
    sys.stderr.write(f"{CANNOT_END}\n")
    sys.stderr.flush()
    os._exit(NO_END)


@contextlib.contextmanager
def _callees_captured(refused: Callable[[], bool], log: EventLog) -> Iterator[None]:
    """Capture all of the program that a refused frame calls, except generators.

    Dynamo inlines a generator, but cannot capture it by itself.
    """

    def offering(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            if frame.f_code.co_flags & inspect.CO_GENERATOR and refused():
                return ConvertFrameReturn()
            return original(self, frame, *args, **kwargs)

        return convert

    def relevant(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def has_tensor_in_frame(frame: Any) -> bool:
            return (_is_function_of_program(frame.f_code) and refused()) or original(frame)

        return has_tensor_in_frame

    with patched(OFFER, offering, log), patched(RELEVANT, relevant, log):
        yield


def _is_function_of_program(code: CodeType) -> bool:
    """Return whether code belongs to a function, not a comprehension, of the program itself."""
    return not code.co_filename.startswith(OF_OTHERS) and not code.co_name.endswith("comp>")


def function_of(code: CodeType) -> tuple[str, int | None]:
    """Return the name of the function that code belongs to, and the line at which it resumes."""
    name, line = code.co_name, None
    while found := RESUMED.match(name):
        name, line = found["function"], int(found["line"]) if line is None else line
    return name, line


@contextlib.contextmanager
def cuts_allowed(log: EventLog) -> Iterator[None]:
    """Let torch.compile(fullgraph=True) accept frames that are off, and the rest of cut frames.

    It still raises at graph breaks of the program. Without fullgraph, Dynamo would not compile a
    frame in which nothing is captured, and the failure of such a frame would be gone.
    """

    def tolerant(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def optimize(*args: Any, **kwargs: Any) -> Any:
            context = original(*args, **kwargs)
            context.fullgraph = False  # the object only checks if a frame was compiled
            return context

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
