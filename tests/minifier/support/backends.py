"""Backends that fail in one known way on graphs that contain tanh."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.targets.backends import Backend


class Planted(Exception):
    """What a backend raises on purpose."""


def holds_tanh(module: fx.GraphModule) -> bool:
    return any(_is_tanh(n) for n in module.graph.nodes)


def _is_tanh(node: fx.Node) -> bool:
    return node.target in ("tanh", torch.tanh)


def right(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Computes what eager computes."""
    return module.forward


def wrong(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Computes a sigmoid instead of tanh."""
    for node in module.graph.nodes:
        if _is_tanh(node):
            node.op, node.target, node.kwargs = "call_function", torch.sigmoid, {}
    module.recompile()
    return module.forward


def raises(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Cannot compile tanh."""
    if holds_tanh(module):
        raise Planted(f"no tanh among {len(module.graph.nodes)} nodes")
    return module.forward


def raises_late(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles tanh to something that cannot run."""
    if not holds_tanh(module):
        return module.forward

    def call(*values: Any) -> Any:
        raise Planted("in the compiled program")

    return call


def crashes(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles tanh to a segfault."""
    return (lambda *values: ctypes.string_at(0)) if holds_tanh(module) else module.forward


def hangs(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Never returns on tanh."""
    if holds_tanh(module):
        time.sleep(1000)
    return module.forward


def taking(seconds: float) -> Callable[..., Any]:
    """Return a backend that compiles anything correctly, in this many seconds."""

    def slow(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        time.sleep(seconds)
        return module.forward

    return slow


def target(backend: Any) -> Backend:
    """Return a backend as the minifier sees it."""
    name = backend if isinstance(backend, str) else backend.__name__
    return Backend(backend, name)
