"""Decisions about the kind of reduction, by Triton kernel."""

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
PATCHES = (PERSISTENT, COOPERATIVE)

TRITON = {
    "codegen.persistent_reduction": "load all elements of a reduction at once instead of in a "
    "loop, kernel by kernel",
    "codegen.cooperative_reduction": "let several blocks share a reduction, kernel by kernel",
}
"""Units of reductions."""


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

    with (
        patched(PERSISTENT, reducing("codegen.persistent_reduction"), log),
        patched(COOPERATIVE, reducing("codegen.cooperative_reduction"), log),
    ):
        yield
