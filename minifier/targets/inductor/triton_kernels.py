"""Decisions by Triton kernel: the kind of reduction, and the choice of a configuration."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.targets.inductor.codegen import current_kernel

KERNEL = "torch._inductor.codegen.triton:TritonKernel"
PERSISTENT = Patch(
    KERNEL,
    "should_use_persistent_reduction",
    "codegen.persistent_reduction cannot be switched off",
)
COOPERATIVE = Patch(
    KERNEL,
    "should_use_cooperative_reduction",
    "codegen.cooperative_reduction cannot be switched off",
)
AUTOTUNER = Patch(
    "torch._inductor.runtime.triton_heuristics:CachingAutotuner",
    "__init__",
    "codegen.autotune cannot be switched off",
    takes=("configs", "inductor_meta"),
)
PATCHES = (PERSISTENT, COOPERATIVE, AUTOTUNER)

TRITON = {
    "codegen.persistent_reduction": "load all elements of a reduction at once instead of in a "
    "loop, kernel by kernel",
    "codegen.cooperative_reduction": "let several blocks share a reduction, kernel by kernel",
    "codegen.autotune": "time several configurations of a Triton kernel instead of taking the "
    "first",
}
"""Units of Triton kernels."""


@contextlib.contextmanager
def triton_kernels(gate: Gate, log: EventLog) -> Iterator[None]:
    """Let each Triton kernel ask the gate."""

    def reducing(unit: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
        def make(original: Callable[..., bool]) -> Callable[..., bool]:
            @functools.wraps(original)
            def should_use(self: Any) -> bool:
                return bool(original(self) and gate.allows(unit, current_kernel()))

            return should_use

        return make

    def tuning(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            configs = kwargs.get("configs", ())
            known = kwargs.get("inductor_meta") or {}
            kernel = str(known.get("kernel_name", "")).rstrip("_0123456789")
            if len(configs) > 1 and not gate.allows("codegen.autotune", kernel):
                kwargs["configs"] = configs[:1]
            original(self, *args, **kwargs)

        return init

    with (
        patched(PERSISTENT, reducing("codegen.persistent_reduction"), log),
        patched(COOPERATIVE, reducing("codegen.cooperative_reduction"), log),
        patched(AUTOTUNER, tuning, log),
    ):
        yield
