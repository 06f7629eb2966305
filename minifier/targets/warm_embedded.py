"""Imports once what a first compile by the embedded compiler would import in every process."""

from __future__ import annotations

import torch

from tcdebug.minifier.targets.backends import EMBEDDED


def warm_up() -> None:
    """Import in this process what a first compile imports, rather than in every child.

    It uses no gradients, because on a machine with devices autograd would start threads and forbid
    forks.
    """
    weight = torch.ones(2, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ weight).sum()

    compiled = torch.compile(step, backend=EMBEDDED, options={"log": False})
    compiled(torch.ones(2, 2))
    torch._dynamo.reset()
