"""Cases that Dynamo captured from plain functions, on which the tests of the minifier work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, from_captured


class Recorded:
    """A backend that compiles nothing, and keeps each graph with the values it is called with."""

    def __init__(self) -> None:
        self.graphs: list[tuple[fx.GraphModule, tuple[Any, ...]]] = []

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            self.graphs.append((module, values))
            return module(*values)

        return call


def captured(function: Callable[..., Any], *args: Any, dynamic: bool = False) -> Case:
    """Return the case of a function that Dynamo captures as one graph, called with `args`."""
    recorded = Recorded()
    torch.compile(function, backend=recorded, dynamic=dynamic, fullgraph=True)(*args)
    (graph,) = recorded.graphs
    return from_captured(*graph)


def targets(case: Case) -> list[str]:
    """Return what the nodes call, by short names and in order."""
    return [n.target if isinstance(n.target, str) else n.target.__name__ for n in case.calls]
