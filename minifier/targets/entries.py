"""Inductor's own entry points as backends of torch.compile. Their sources are part of repros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def compile_fx(module: Any, inputs: Any, options: Any = None) -> Any:
    """Compile a graph by torch._inductor.compile_fx.compile_fx; `options` are its settings."""
    from torch._inductor.compile_fx import compile_fx as entry  # noqa: PLC0415 - takes long

    return entry(module, inputs, config_patches=dict(options or {}))


def inductor_compile(module: Any, inputs: Any, options: Any = None) -> Any:
    """Compile a graph by torch._inductor.compile; `options` are settings of inductor."""
    return torch._inductor.compile(module, inputs, options=dict(options or {}))


def standalone_compile(module: Any, inputs: Any, options: Any = None) -> Any:
    """Compile a graph by torch._inductor.standalone_compile; `options` are settings of inductor."""
    settings = {"config_patches": dict(options or {})}
    return torch._inductor.standalone_compile(
        module, inputs, dynamic_shapes="from_graph", options=settings
    )


ENTRIES: Mapping[str, Callable[..., Any]] = {
    function.__name__: function for function in (compile_fx, inductor_compile, standalone_compile)
}
"""The name of each backend, and the backend."""
