"""Reads what a script passed to torch.compile from torch's wrappers around the backend."""

from __future__ import annotations

from typing import Any

import torch

from tcdebug.minifier.targets.backends import Backend


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
        inner, name = _registered(backend.compiler_fn, name)
    elif isinstance(backend, str):
        name = backend
    else:
        inner, name = _registered(backend, name)
    return Backend(inner, str(name), mode, options, run_dir)


def _registered(backend: Any, name: str | None) -> tuple[Any, str]:
    """Return the name under which torch knows a backend, twice, or else the backend and its own.

    A program's own backend may have the name of a registered one. The module then distinguishes it.
    """
    own = getattr(backend, "__name__", type(backend).__name__)  # torch names objects by address
    name = name if name is not None and hasattr(backend, "__name__") else own
    if name not in torch._dynamo.list_backends(exclude_tags=()):
        return backend, name
    if torch._dynamo.lookup_backend(name) is backend:
        return name, name
    return backend, f"{getattr(backend, '__module__', 'the script')}.{name}"
