"""Compiles the bodies of control flow, which torch's operators call from Python.

A body is compiled as a graph of its own, for the sizes and strides of its arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import is_pure, may_write
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.lower.stage import Lowered
from tcdebug.compiler.operators.control_flow import CONTROL_FLOW
from tcdebug.compiler.stages.stage import Stages

UNIT = "runtime.bodies"
Layout = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class CompiledBody:
    """A body as an operator calls it. For arguments in another layout, it runs the graph itself."""

    compiled: Callable[[list[Any]], Sequence[Any]]
    graph: fx.GraphModule
    layouts: tuple[Layout | None, ...]
    """The size and strides of each argument; None for a number."""
    is_single: bool
    """Whether the graph returns a single value, as the condition of a loop does."""
    report: Callable[[], None]
    """Called where it runs the graph itself."""

    def __call__(self, *arguments: Any) -> Any:
        for given, layout in zip(arguments, self.layouts, strict=True):
            if layout is not None and (given.size(), given.stride()) != layout:
                self.report()
                return self.graph(*arguments)
        results = self.compiled(list(arguments))
        return results[0] if self.is_single else tuple(results)


def with_bodies(
    lowered: Lowered,
    module: fx.GraphModule,
    direction: str,
    stages: Stages,
    compiled: Callable[[fx.GraphModule, str], Callable[[list[Any]], Sequence[Any]]],
) -> Lowered:
    """Return the graph with its bodies compiled, if they write to nothing and have static sizes.

    `compiled` compiles a body, whose direction is that of the graph and its name.
    """
    bodies: dict[str, Any] = {}
    for name, body in _bodies(module):
        layouts = _layouts(body)
        if layouts is None or not stages.gate.allows(UNIT, name):
            continue
        what = f"the graph of {name} in place of its kernels"
        event = Fallback(what, "its arguments have other strides than when it was traced")
        report = functools.cache(functools.partial(stages.log.emit, event))
        single = isinstance(body.graph.output_node().args[0], fx.Node)
        called = compiled(body, f"{direction}.{name}")
        bodies[name] = CompiledBody(called, body, layouts, single, report)
    if not bodies:
        return lowered
    constants = {**lowered.graph.constants, **bodies}
    return replace(lowered, graph=replace(lowered.graph, constants=constants))


def _bodies(module: fx.GraphModule) -> Iterator[tuple[str, fx.GraphModule]]:
    """Yield the graphs that only control flow uses, with the names of their nodes."""
    for node in module.graph.find_nodes(op="get_attr"):
        body = getattr(module, str(node.target), None)
        if isinstance(body, fx.GraphModule) and all(u.target in CONTROL_FLOW for u in node.users):
            yield node.name, body


def _layouts(body: fx.GraphModule) -> tuple[Layout | None, ...] | None:
    """Return the layouts of a body's arguments; None if it cannot be compiled for them."""
    layouts: list[Layout | None] = []
    for node in body.graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                layouts.append(None)
                continue
            layout = (tuple(value.size()), tuple(value.stride()))
            if any(isinstance(number, torch.SymInt) for part in layout for number in part):
                return None
            layouts.append(layout)
        elif node.op == "call_function" and not _is_harmless(node):
            return None
    return tuple(layouts)


def _is_harmless(node: fx.Node) -> bool:
    """Return whether a call writes to nothing that it is given."""
    return node.target in CONTROL_FLOW or is_pure(node) or not may_write(node)
