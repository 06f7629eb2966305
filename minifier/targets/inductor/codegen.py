"""What is decided while kernels are written: vectorisation by kernel, memory, threads."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch._inductor import config
from torch._inductor.virtualized import V

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.targets.inductor.fusion import kernel_name
from tcdebug.minifier.targets.inductor.settings import CODEGEN, GPU, asked

TILING = Patch(
    "torch._inductor.codegen.cpp:TilingSelect",
    "select_tiling",
    "codegen.vectorize is no unit",
)
CODE, CODE_IN_CPP = (
    Patch(
        "torch._inductor.graph:GraphLowering",
        name,
        "settings of code generation (config.*) are no units",
    )
    for name in ("codegen", "codegen_with_cpp_wrapper")
)
PATCHES = (TILING, CODE, CODE_IN_CPP)


@contextlib.contextmanager
def kernels(gate: Gate, log: EventLog) -> Iterator[None]:
    """Every C++ kernel that would be vectorised asks the gate, and each setting once a graph."""

    def vectorizing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def select_tiling(self: Any, *args: Any, **kwargs: Any) -> Any:
            factors, indices, *rest = original(self, *args, **kwargs)
            if factors and not gate.allows("codegen.vectorize", _current_kernel()):
                factors, indices = [], []
            return (factors, indices, *rest)

        return select_tiling

    def configured(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
            on_gpu = any(device != "cpu" for device in self.device_types)
            with config.patch(asked(gate, {**CODEGEN, **(GPU if on_gpu else {})})):
                return original(self, *args, **kwargs)

        return codegen

    with (
        patched(TILING, vectorizing, log),
        patched(CODE, configured, log),
        patched(CODE_IN_CPP, configured, log),
    ):
        yield


def _current_kernel() -> str:
    """The FX nodes that the kernel being written computes."""
    node = getattr(V.graph.scheduler, "current_node", None)
    return "" if node is None else kernel_name(node)
