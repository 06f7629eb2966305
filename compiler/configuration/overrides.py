"""Stages that a caller replaces with its own, as the backends of other vendors do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

GraphCompiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""An ATen graph and fake inputs -> what runs it, as AOTAutograd asks for it."""


@dataclass(frozen=True)
class Overrides:
    """What replaces stages of the compiler; None, or nothing in a table, leaves its own."""

    decompositions: Mapping[torch._ops.OpOverload, Callable[..., Any]] = field(default_factory=dict)
    fw_compiler: GraphCompiler | None = None
    bw_compiler: GraphCompiler | None = None
    inference_compiler: GraphCompiler | None = None
    partition_fn: Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None

    def compiler(self, direction: str) -> GraphCompiler | None:
        """What compiles the graphs of a direction instead: forward, backward or inference."""
        given = {
            "forward": self.fw_compiler,
            "backward": self.bw_compiler,
            "inference": self.inference_compiler,
        }
        return given[direction]
