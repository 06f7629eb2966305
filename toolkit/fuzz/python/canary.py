"""A function that torch.compile always captures, which shows that a process still compiles.

A program may leave something behind because of which Dynamo runs everything in eager. The programs
that follow in the process would all pass.
"""

from __future__ import annotations

import torch

from tcdebug.fuzz.python.counting import CountingBackend


def still_compiles() -> bool:
    """Return whether this process compiles the function. Forgets all that is compiled."""
    torch.compiler.reset()
    counting = CountingBackend(_unchanged)
    torch.compile(_canary, backend=counting)(torch.zeros(1))
    torch.compiler.reset()
    return counting.compiles == 1


def _canary(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _unchanged(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
    return graph
