"""Intercepts calls of compiled functions."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.eval_frame import OptimizeContext

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.reuse.rerun import CompiledCall

DECORATE = Patch(
    "torch._dynamo.eval_frame:_TorchDynamoContext",
    "__call__",
    "calls that reuse compiled code are not checked",
)
PATCHES = (DECORATE,)


@contextlib.contextmanager
def compiled_calls(around: Callable[[CompiledCall], Any], log: EventLog) -> Iterator[None]:
    """Route calls of functions that are compiled in this block through `around`."""

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def decorate(self: Any, function: Any) -> Any:
            compiled = original(self, function)
            inner = getattr(compiled, "_torchdynamo_orig_callable", None)
            if not isinstance(self, OptimizeContext) or inner is None or isinstance(compiled, type):
                return compiled
            if not hasattr(compiled, "__code__"):
                return compiled  # a module: its forward is intercepted separately

            @functools.wraps(compiled)
            def call(*args: Any, **kwargs: Any) -> Any:
                return around(CompiledCall(inner, compiled, args, kwargs))

            vars(call)["_torchdynamo_wrapper_id"] = id(call)  # marks it as an original, not a copy
            return call

        return decorate

    with patched(DECORATE, watching, log):
        yield
