"""Reads what a script passed to torch.compile from torch's wrappers around the backend."""

from __future__ import annotations

from typing import Any

import torch

from tcdebug.minifier.targets.backends import EMBEDDED, Backend


def _mode_of(config: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the mode that results in these inductor settings, or else the settings themselves."""
    modes: dict[str, dict[str, Any]] = torch._inductor.list_mode_options()
    mode = next((m for m, made in modes.items() if made and made == config), None)
    return (None, config) if mode is None else (mode, {})


def describe(backend: Any, run_dir: str) -> Backend:
    """Return the backend that a script passed to torch.compile, with its mode and options."""
    name = getattr(backend, "compiler_name", None)
    mode: str | None = None
    options: dict[str, Any] = {}
    inner = backend
    if type(backend).__name__ == "_TorchCompileInductorWrapper":
        mode, options = _mode_of(dict(getattr(backend, "config", {})))
        name = "inductor"
    elif type(backend).__name__ == "_TorchCompileWrapper":
        given = dict(getattr(backend, "kwargs", {}))
        mode, options = given.get("mode"), dict(given.get("options") or {})
        inner = backend.compiler_fn
        if isinstance(name, str) and name in torch._dynamo.list_backends(exclude_tags=()):
            inner = name
        elif not hasattr(inner, "__name__"):
            name = type(inner).__name__  # torch names an object by its address
    elif isinstance(backend, str):
        name = backend
    else:
        name = name or getattr(backend, "__name__", type(backend).__name__)
    if name == EMBEDDED:
        inner = EMBEDDED
    return Backend(inner, str(name), mode, options, run_dir)
