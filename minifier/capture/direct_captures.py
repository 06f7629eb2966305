"""Captures that a program asks for itself, without torch.compile.

A program may give its functions to AOTAutograd. Without AOTAutograd, these run as they are. A
program may also record a function with a tracer. What a tracer recorded runs in eager too, so the
event `program.traced` says that a failure in eager may be the tracer's.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import ProgramTraced
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.capture.saved_code import patched_when_imported
from tcdebug.minifier.processes.callers import called_by_user
from tcdebug.minifier.targets.backends import EAGER

AOT = "a function that a script gives to AOTAutograd itself is compiled in eager too"
DEFINING = "torch._functorch.aot_autograd"
"""The module that defines these functions."""
WITH_FUSION = "torch._functorch.compilers"
"""The module of `memory_efficient_fusion`, which calls two of them."""
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "aot_function": ("fw_compiler",),
    "aot_module": (),
    "compiled_function": ("fw_compiler",),
    "compiled_module": (),
    "aot_module_simplified": ("args", "fw_compiler"),
}
"""Function -> parameters that it must have. `compiled_*` are other names of `aot_*`."""
IMPORTED: Mapping[str, tuple[str, ...]] = {
    WITH_FUSION: ("aot_function", "aot_module"),
    "functorch.compile": tuple(FUNCTIONS),
}
"""Modules that take 0.2 s to import, and what they then take from the module that defines it."""
ENTRIES = tuple(
    Patch(owner, name, AOT, takes=FUNCTIONS[name])
    for owner, names in (*IMPORTED.items(), (DEFINING, tuple(FUNCTIONS)))
    for name in names
)
TRACED = "a failure of a tracer counts as one of the script in eager"
MAKE_FX = Patch("torch.fx.experimental.proxy_tensor", "make_fx", TRACED)
SYMBOLIC_TRACE = Patch("torch.fx", "symbolic_trace", TRACED)
JIT_TRACE = Patch("torch.jit", "trace", TRACED)
DYNAMO_EXPORT = Patch("torch._dynamo", "export", TRACED)
TRACERS = (MAKE_FX, SYMBOLIC_TRACE, JIT_TRACE, DYNAMO_EXPORT)
PATCHES = (*ENTRIES, *TRACERS)

POSITIONAL = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions")
"""The first parameters of `aot_function` after the function."""
COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler")
SIMPLIFIED = "aot_module_simplified"
"""It takes the inputs after the module."""
AOT_EAGER = "aot_eager"


@contextlib.contextmanager
def aot_stopped_at(backend: str, log: EventLog) -> Iterator[None]:
    """Stop functions that a script gives to AOTAutograd in this block where `backend` stops.

    With the backend `eager`, functions and modules are returned as they are.
    """
    ended = False

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def captured(function: Any, *args: Any, **options: Any) -> Any:
            if ended or not called_by_user(sys._getframe(1)):
                return original(function, *args, **options)
            if backend == EAGER:
                return function
            inputs = args[:1] if original.__name__ == SIMPLIFIED else ()
            rest = args[len(inputs) :]
            given = dict(zip(POSITIONAL, rest, strict=False)) | options
            if backend == AOT_EAGER:
                given.pop("partition_fn", None)
                given.pop("decompositions", None)
            given |= dict.fromkeys(COMPILERS, _as_it_is)
            return original(function, *inputs, *rest[len(POSITIONAL) :], **given)

        return captured

    with contextlib.ExitStack() as stack:
        for patch in ENTRIES:
            if patch.owner not in IMPORTED or patch.owner in sys.modules:
                stack.enter_context(patched(patch, make, log))
        try:
            yield
        finally:
            ended = True  # modules imported in the block have kept the replacement


@contextlib.contextmanager
def tracers_noticed(log: EventLog) -> Iterator[None]:
    """Emit an event for each call of a tracer by the program in this block."""

    def making(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def traced(*args: Any, **options: Any) -> Any:
                if called_by_user(sys._getframe(1)):
                    log.emit(ProgramTraced(name))
                return original(*args, **options)

            return traced

        return make

    with contextlib.ExitStack() as stack:
        for patch in TRACERS:
            patched_when_imported(stack, patch, making(str(patch)), log)
        yield


def _as_it_is(graph: Any, inputs: Any) -> Any:
    """Compile nothing."""
    return graph
