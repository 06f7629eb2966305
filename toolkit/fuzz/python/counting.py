"""Counts the graphs that a program has compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class CountingBackend:
    """A backend that counts the graphs that it compiles.

    A compile that raises does not count. Some make Dynamo capture the graph once more, which is not
    needed if a cache has the graph.
    """

    compiler: Callable[..., Any]
    compiles: int = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        compiled = self.compiler(graph, inputs)
        self.compiles += 1
        return compiled
