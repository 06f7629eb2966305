"""The interception points between a program and torch: its backends and its backward passes."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.utils.checkpoint

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, install, owner_of, patched
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.processes.job import INVALID_BACKEND

OPTIMIZE = Patch("torch._dynamo", "optimize", "no graph of a program is seen")
BACKWARD = Patch("torch.autograd", "backward", "a failure in backward() leaves no repro")
GRAD = Patch("torch.autograd", "grad", "a failure in torch.autograd.grad leaves no repro")
COMPILE_FX = Patch(
    "torch._inductor.compile_fx",
    "compile_fx",
    "options of inductor (option.*) cannot be switched off, and no graph is seen that a script "
    "gives to this function",
    takes=("config_patches",),
)

COMPILE = Patch(
    "torch", "compile", "settings that torch.compile refuses make a script fail in eager too"
)

CHECKPOINT = Patch(
    "torch._higher_order_ops.wrap:TagActivationCheckpoint",
    "__call__",
    "with the backend eager, a checkpoint draws other random numbers in backward than in forward",
)

PATCHES = (OPTIMIZE, BACKWARD, GRAD, COMPILE_FX, COMPILE, CHECKPOINT)

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The classes of tensors that hold their own numbers."""
SETTINGS = ("mode", "options", "backend")
"""Arguments of torch.compile that mean nothing to a backend that replaces the program's."""


def compile_patched(wrap: Callable[[Any], Any], log: EventLog) -> AbstractContextManager[None]:
    """Pass every backend that the program gives to torch.compile in this block through `wrap`.

    Compiles that torch makes for its own purposes are left alone.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def optimize(*args: Any, **kwargs: Any) -> Any:
            if not called_by_user(sys._getframe(1)):
                return original(*args, **kwargs)
            if args:
                return original(wrap(args[0]), *args[1:], **kwargs)
            kwargs["backend"] = wrap(kwargs.get("backend", "inductor"))
            return original(**kwargs)

        return optimize

    return patched(OPTIMIZE, make, log)


def settings_ignored(log: EventLog) -> AbstractContextManager[None]:
    """Compile without the settings of the program in this block if torch.compile refuses them.

    A backend that replaces the program's has no such settings.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_leniently(model: Any = None, **given: Any) -> Any:
            try:
                return original(model, **given)
            except Exception as refusal:
                unknown_backend = type(refusal).__name__ == INVALID_BACKEND
                if unknown_backend or not called_by_user(sys._getframe(1)):
                    raise
                rest = {name: value for name, value in given.items() if name not in SETTINGS}
                try:
                    return original(model, **rest)
                except Exception:  # the settings are not at fault
                    raise refusal from None

        return compile_leniently

    return patched(COMPILE, make, log)


def checkpoints_draw_again(log: EventLog) -> AbstractContextManager[None]:
    """Make checkpoints in graphs that nothing compiles draw the same numbers in backward again.

    Their operator leaves that to the compiler, and the backend `eager` does not do it.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            tensors = [value for value in args if isinstance(value, torch.Tensor)]
            if any(type(value) not in PLAIN for value in tensors):  # torch may be tracing
                return original(self, body, *args, **kwargs)
            return torch.utils.checkpoint.checkpoint(body, *args, **kwargs)

        return call

    return patched(CHECKPOINT, make, log)


def before_call(owner: str, function: str, do: Callable[[], None]) -> Callable[[], None]:
    """Call `do` before a call of a function of torch, unless the result is called before.

    `do` may itself patch the function. What it leaves in its place is called then.
    """
    patch = Patch(owner, function, "a program in a child process is not seen")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def first_call(*args: Any, **kwargs: Any) -> Any:
            do()
            undo()
            return getattr(owner_of(patch), function)(*args, **kwargs)

        return first_call

    made = install(patch, make, EventLog(None))
    undo = made.undo if made is not None else lambda: None
    return undo


@contextlib.contextmanager
def backward_watched(failed: Callable[[BaseException], None], log: EventLog) -> Iterator[None]:
    """Call `failed` with every exception that a backward pass in this block raises.

    That includes KeyboardInterrupt, because Ctrl-C may be what ends a hang.
    """

    def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (Exception, KeyboardInterrupt) as error:
                failed(error)
                raise

        return call

    with patched(BACKWARD, reporting, log), patched(GRAD, reporting, log):
        yield
