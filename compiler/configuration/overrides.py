"""Stages of the compiler that a caller, such as a vendor's backend, replaces with its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

GraphCompiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""(ATen graph, fake inputs) -> a callable that runs the graph; AOTAutograd's compiler protocol."""


@dataclass(frozen=True)
class Overrides:
    """Replacements for stages of the compiler. None, or no entry, keeps the compiler's own."""

    decompositions: Mapping[torch._ops.OpOverload, Callable[..., Any]] = field(default_factory=dict)
    fw_compiler: GraphCompiler | None = None
    bw_compiler: GraphCompiler | None = None
    inference_compiler: GraphCompiler | None = None
    partition_fn: Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None

    def compiler(self, direction: str) -> GraphCompiler | None:
        """Return the replacement compiler of a direction: forward, backward or inference."""
        given = {
            "forward": self.fw_compiler,
            "backward": self.bw_compiler,
            "inference": self.inference_compiler,
        }
        return given[direction]
