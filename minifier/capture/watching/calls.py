"""Notes whether a script calls its compiled functions, and the exceptions that leave them.

Dynamo wraps an error of the program in an exception of its own. A script that catches it and ends
with an exit status, or raises another exception, no longer shows what it caught.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import CompiledCalled
from tcdebug.compiler.events.search_events import CallRaised
from tcdebug.compiler.patching import patched
from tcdebug.minifier.capture import identity
from tcdebug.minifier.capture.identity import Identity
from tcdebug.minifier.capture.layers_off import each_call
from tcdebug.minifier.cases.user_frames import (
    TracebackFrame,
    innermost_line,
    outside_torch,
    stack_of_user,
)
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.targets.interception import OPTIMIZE
from tcdebug.minifier.trace.statements import chooses_exception

LONGEST = 2000
"""The limit on the characters of a message."""


def raised_calls_noted(off: tuple[str, ...], log: EventLog) -> AbstractContextManager[None]:
    """Emit an event for each exception that leaves a compiled function in this block.

    `off` is what is switched off. The functions may run in eager, and may be modules.
    """
    calls = _Calls(off, log)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            context = original(*args, **kwargs)
            if not called_by_user(sys._getframe(1)):
                return context
            if isinstance(context, Identity):
                context.captured = calls.around(context.captured)
            elif (hooks := getattr(context, "enter_exit_hooks", None)) is not None:
                hooks.append(calls.enter)
            return context

        return optimize

    return patched(OPTIMIZE, make, log)


def first_call_noted(log: EventLog) -> AbstractContextManager[None]:
    """Emit an event when a compiled function is first called in this block."""
    noted = False

    def note() -> Callable[[], None]:
        nonlocal noted
        if not noted:
            noted = True
            log.emit(CompiledCalled())
        return lambda: None

    return each_call(note, log)


@dataclass
class _Calls:
    """Counts the outermost calls of compiled functions."""

    off: tuple[str, ...]
    log: EventLog
    count: int = 0
    depth: ContextVar[int] = field(default_factory=lambda: ContextVar("depth", default=0))

    def enter(self) -> Callable[[], None]:
        """Begin a call. Return the function to call after it."""
        outer, before = self.depth.get(), sys.exception()
        self.depth.set(outer + 1)
        self.count += outer == 0
        number = self.count

        def leave() -> None:
            self.depth.set(outer)
            error = sys.exception()
            if outer == 0 and error is not None and error is not before:
                self.log.emit(_event(error, self.off, number))

        return leave

    def around(self, captured: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return what wraps functions that run in eager so that their calls are seen too."""

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            inner = captured(function) if captured is not None else function

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                leave = self.enter()
                try:
                    return inner(*args, **kwargs)
                finally:
                    leave()

            return call

        return wrap


def _event(error: BaseException, off: tuple[str, ...], number: int) -> CallRaised:
    """Describe an exception by the program's line that raised it.

    That is the line that Dynamo names, or else the innermost one of the stack. If only code of
    torch is compiled, it is any line of the stack.
    """
    message, stack = str(error), _frames(error)
    reported = innermost_line(stack_of_user(message))
    users = outside_torch(stack)
    places = [reported] if reported else [frame.place for frame in users[-1:] or stack]
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"
    last = stack[-1] if stack else None
    chosen = last is not None and chooses_exception(last.file, last.line, last.code)
    return CallRaised(list(off), number, name, message[:LONGEST], places, chosen)


def _frames(error: BaseException) -> list[TracebackFrame]:
    """Return the frames of an exception, without those of tcdebug that replace torch's."""
    return [
        TracebackFrame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in (__file__, identity.__file__)
    ]
