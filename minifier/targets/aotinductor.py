"""AOTInductor as a backend of torch.compile: a graph is exported, packaged and loaded.

Its source is also part of the repros that use it.
"""

from __future__ import annotations

from typing import Any

import torch


def aotinductor(module: Any, inputs: Any, options: Any = None) -> Any:
    """Export a graph, compile it ahead of time and load the package. No gradients are recorded.

    `options` are settings of inductor. A graph with symbolic sizes is compiled for each set of
    sizes that it is called with.
    """
    packages: dict[Any, Any] = {}

    def refuse_gradients(values: Any) -> None:
        wanted = any(torch.is_tensor(v) and v.requires_grad for v in values)
        if wanted and torch.is_grad_enabled():
            raise RuntimeError("AOTInductor records no gradients: call it under torch.no_grad()")

    def sizes(values: Any) -> Any:
        return tuple((v.shape, v.stride()) if torch.is_tensor(v) else v for v in values)

    def compiled(values: Any) -> Any:
        with torch._guards.tracing(None), torch.no_grad():
            program = torch.export.export(module, tuple(values))
            path = torch._inductor.aoti_compile_and_package(
                program, inductor_configs=dict(options or {})
            )
            return torch._inductor.aoti_load_package(path)

    def call(*values: Any) -> Any:
        refuse_gradients(values)
        key = sizes(values)
        if key not in packages:
            packages[key] = compiled(values)
        return packages[key](*values)

    refuse_gradients(inputs)
    if not any(isinstance(value, torch.SymInt) for value in inputs):
        packages[sizes(inputs)] = compiled(inputs)
    return call
