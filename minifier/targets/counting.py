"""Backends of `torch._dynamo.testing` that count or keep graphs, beside one that takes their place.

A script that asserts how many graphs it compiled must pass that assertion with another backend too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

TESTING = "torch._dynamo.testing"
"""The module of torch with such backends."""
COUNTING = ("CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs")
"""Those that do nothing else, or give the graph to the backend that their attribute names."""


def is_own(backend: Any) -> bool:
    """Return whether a backend given to torch.compile is a function or an object of the program."""
    inner = _unwrapped(backend)
    module = inner.__module__ if hasattr(inner, "__qualname__") else type(inner).__module__
    return not (isinstance(inner, str) or module.partition(".")[0] == "torch")


def counted_beside(backend: Any, stand_in: str) -> Any:
    """Return `stand_in`. If `backend` counts graphs, the result also counts each graph with it."""
    backend = _unwrapped(backend)
    kind = type(backend)
    if kind.__module__ != TESTING or kind.__name__ not in COUNTING:
        return stand_in
    compile_graph = torch._dynamo.lookup_backend(stand_in)

    def count_and_compile(graph: torch.fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        _count(backend, graph, inputs)
        return compile_graph(graph, inputs, **kwargs)

    return count_and_compile


def _unwrapped(backend: Any) -> Any:
    """Return the backend within torch.compile's object for a backend with its options."""
    wrapper = type(backend)
    if wrapper.__module__ == "torch" and wrapper.__name__ == "_TorchCompileWrapper":
        return backend.compiler_fn
    return backend


def _count(backend: Any, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
    """Call a backend that counts, without the one that it names."""
    named = vars(backend).get("backend")
    if named is not None:
        backend.backend = "eager"
    try:
        result: Callable[..., Any] = backend(graph, inputs)
    finally:
        if named is not None:
            backend.backend = named
    return result
