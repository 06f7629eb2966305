"""Decides from its operators whether a graph draws random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import fx

DRAWS = frozenset(
    f"aten::{name}"
    for name in (
        *("bernoulli", "bernoulli_", "binomial", "cauchy_", "exponential_", "geometric_"),
        *("log_normal_", "multinomial", "normal_", "poisson", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "random_", "randperm", "uniform_"),
    )
)
"""Operators whose result consists only of drawn numbers. `normal` also adds a mean."""
DRAWING = {name.removeprefix("aten::").rstrip("_") for name in DRAWS} | {"normal"}
"""Names of functions and methods of torch that draw numbers, without a final underscore."""
AT_TIMES = (
    "rrelu",
    "gumbel_softmax",
    "multi_head_attention_forward",
    "scaled_dot_product_attention",
)
"""Functions that draw numbers for some arguments, besides those with dropout in their names."""


def calls_drawing(module: torch.nn.Module) -> bool:
    """Return whether a graph calls a drawing function, even if it draws zero numbers."""
    return any(name in DRAWING for name in _called(module))


def may_draw(module: torch.nn.Module) -> bool:
    """Return whether a graph calls a function that draws numbers for some of its arguments."""
    return any(name in DRAWING or "dropout" in name or name in AT_TIMES for name in _called(module))


def draws_apart(module: torch.nn.Module, devices: Iterable[str]) -> bool:
    """Return whether inductor draws numbers that eager does not, even with `fallback_random`.

    It decomposes `torch.bernoulli(p)` into a comparison with `rand`. On a GPU, eager's kernel draws
    other numbers (PyTorch issue 188074). `devices` are those of the graph's inputs.
    """
    return any(device.startswith("cuda") for device in devices) and any(
        _name(node.target) == "bernoulli" and len(node.args) == 1 and "p" not in node.kwargs
        for node in _calls(module)
    )


def _called(module: torch.nn.Module) -> Iterator[str]:
    """Yield the names of what a graph and its subgraphs call, without a final underscore."""
    return (_name(node.target).rstrip("_") for node in _calls(module))


def _calls(module: torch.nn.Module) -> Iterator[fx.Node]:
    """Yield the calls of a graph and its subgraphs."""
    graphs = (part.graph for part in module.modules() if isinstance(part, fx.GraphModule))
    return (node for graph in graphs for node in graph.nodes if node.op.startswith("call_"))


def _name(target: object) -> str:
    """Return the name of what a node calls, without namespace and overload."""
    if isinstance(target, str):
        return target
    return str(getattr(getattr(target, "overloadpacket", target), "__name__", ""))
