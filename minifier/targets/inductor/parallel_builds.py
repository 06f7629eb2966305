"""Builds the Triton kernels of a candidate in forks, several at a time.

Inductor builds kernels in a pool of processes, in which neither a gate nor a patch of the script is
in force. A candidate has no such pool and builds its kernels itself, one after another. Once one of
them was not in Triton's cache, forks of the candidate build the others of the same module. A fork
decides as the candidate will, so that the candidate then finds its kernels in the cache.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._inductor.codecache import PyCodeCache

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.processes.fork import Notify, fork
from tcdebug.minifier.processes.job import NVML
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.targets.inductor.triton_compile import ask_about_compile
from tcdebug.minifier.trace.inductor_code import built_kernels

LOADING = Patch(
    "torch._inductor.graph:GraphLowering",
    "_compile_to_module_lines",
    "candidates build Triton kernels one after another",
    takes=("wrapper_code",),
)
BUILDING = Patch(
    "torch._inductor.async_compile:AsyncCompile",
    "triton",
    "candidates build Triton kernels one after another",
    takes=("kernel_name", "source_code"),
)
PATCHES = (LOADING, BUILDING)

CACHED = 0.3
"""Seconds within which a kernel that is in Triton's cache is loaded."""
MOST = 8
"""The most forks of a candidate, beside which other candidates run."""

Function = Callable[..., Any]
Kernel = tuple[str, str]
"""A name and a source."""


@contextlib.contextmanager
def parallel_builds(gate: Gate, log: EventLog) -> Iterator[None]:
    """Build Triton kernels in forks while this block compiles."""
    modules: list[str] = []
    """The code whose kernels are being built; empty once forks have built them."""

    def loading(original: Function) -> Function:
        @functools.wraps(original)
        def compile_to_module_lines(self: Any, wrapper_code: Any) -> Any:
            modules.append(wrapper_code.value)
            try:
                return original(self, wrapper_code)
            finally:
                modules.pop()

        return compile_to_module_lines

    def building(original: Function) -> Function:
        @functools.wraps(original)
        def triton(self: Any, kernel_name: str, source_code: str, *args: Any, **kwargs: Any) -> Any:
            began = time.monotonic()
            kernel = original(self, kernel_name, source_code, *args, **kwargs)
            if modules and modules[-1] and time.monotonic() - began > CACHED:
                _build(kernels_after(kernel_name, modules[-1]), gate, log)
                modules[-1] = ""
            return kernel

        return triton

    with patched(LOADING, loading, log), patched(BUILDING, building, log):
        yield


def kernels_after(name: str, code: str) -> list[Kernel]:
    """Return the Triton kernels that generated code builds after the kernel `name`, in order."""
    kernels: list[Kernel] = [
        (ast.literal_eval(call.args[0]), ast.literal_eval(call.args[1]))
        for _, call in built_kernels(ast.parse(code))
        if ast.unparse(call.func) == "async_compile.triton"
    ]
    names = [kernel[0] for kernel in kernels]
    return kernels[names.index(name) + 1 :] if name in names else []


def _build(kernels: Sequence[Kernel], gate: Gate, log: EventLog) -> None:
    """Build kernels in forks. If a fork does not end well, the candidate builds its kernels."""
    count = min(len(kernels), len(os.sched_getaffinity(0)), MOST)
    if count < 2:
        return
    forks = [
        fork(functools.partial(_build_some, kernels, range(n, len(kernels), count), gate), Limits())
        for n in range(count)
    ]
    for child in forks:
        if finished(child).answer is None:
            log.emit(Fallback("parallel builds", "a fork of the candidate built no kernels"))


def _build_some(kernels: Sequence[Kernel], own: range, gate: Gate, _notify: Notify) -> bytes:
    """In a fork, build some of the kernels, and only ask about the others."""
    gate.record = lambda decision, scope: None  # the candidate records its decisions itself
    os.environ[NVML] = "1"  # a fork must see that there is a device without using CUDA
    for number, (name, source) in enumerate(kernels):
        tuner = getattr(PyCodeCache.load(source), name)
        if number in own:
            tuner.precompile(warm_cache_only=True)
        else:
            ask_about_compile(gate, tuner)
    return b"built"
