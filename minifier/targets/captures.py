"""Lets Dynamo capture the calls of a function without running the code that it makes.

Whatever a program counts of its compiles is then as in a compiled run, although it runs in eager.
"""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Any

import torch
from torch._dynamo.convert_frame import register_bytecode_hook
from torch._dynamo.exc import TorchDynamoException

TORCH = str(Path(torch.__file__).parent)


class _NotRun(BaseException):
    """Raised in place of code that Dynamo made."""


class CapturedInside(RuntimeError):
    """Dynamo captured a function that was called in a part of the program that had run already."""


RAISING = bytes([dis.opmap["RESUME"], 0, dis.opmap["LOAD_CONST"], 0, dis.opmap["RAISE_VARARGS"], 1])
"""Raises the first constant."""


@dataclass
class Captures:
    """Runs functions in eager after Dynamo has captured their calls."""

    active: bool = False
    """Whether the code that Dynamo makes now raises `_NotRun`."""

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Replace the code of such captures for the duration of the block."""
        handle = register_bytecode_hook(self._replace)
        try:
            yield
        finally:
            handle.remove()

    def call(
        self,
        compiled: Callable[..., Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Capture a call of `function`, which is compiled as `compiled`, and run it in eager.

        If Dynamo leaves the function alone, it runs in eager at once, and is not called again.
        Raises CapturedInside if a part of it has run when Dynamo captures something.
        """
        before, self.active = self.active, True
        try:
            return compiled(*args, **kwargs)
        except _NotRun as stop:
            if _ran_before(stop.__traceback__):
                raise CapturedInside(function) from None
        except TorchDynamoException:
            pass  # Dynamo captures nothing
        finally:
            self.active = before
        return function(*args, **kwargs)

    def _replace(self, code: CodeType, new_code: CodeType) -> CodeType | None:
        if not self.active:
            return None
        return new_code.replace(co_code=RAISING, co_consts=(_NotRun,), co_exceptiontable=b"")


def _ran_before(traceback: TracebackType | None) -> bool:
    """Return whether functions of the program called the one that was not run."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(traceback)]
    return any(not file.startswith((TORCH, __file__, "<")) for file in files[:-1])
