"""Where tcdebug stands between a program and torch: its backends, its backward passes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tcdebug.minifier.processes.callers import called_by_user


@contextlib.contextmanager
def compile_patched(wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Let every backend that the program gives to torch.compile in this block go through `wrap`.

    Compiles that torch makes for its own purposes are left alone.
    """
    original = torch._dynamo.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        if not called_by_user(sys._getframe(1)):
            return original(*args, **kwargs)
        if args:
            return original(wrap(args[0]), *args[1:], **kwargs)
        kwargs["backend"] = wrap(kwargs.get("backend", "inductor"))
        return original(**kwargs)

    torch._dynamo.optimize = optimize
    try:
        yield
    finally:
        torch._dynamo.optimize = original


@contextlib.contextmanager
def backward_watched(failed: Callable[[BaseException], None]) -> Iterator[None]:
    """Call `failed` with every exception that comes out of a backward pass in this block.

    Ctrl-C is one of them, for it may be what ends a hang.
    """
    backward, grad = torch.autograd.backward, torch.autograd.grad

    def reporting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (Exception, KeyboardInterrupt) as error:
                failed(error)
                raise

        return call

    torch.autograd.backward, torch.autograd.grad = reporting(backward), reporting(grad)
    try:
        yield
    finally:
        torch.autograd.backward, torch.autograd.grad = backward, grad
