"""The partition stage: the joint graph becomes forward and backward.

partition.min_cut recomputes cheap values in backward rather than saving them. Held back, torch's
default partition saves what backward reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.gate import Gate

UNIT = "partition.min_cut"

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def partitioner(gate: Gate, memory_budget: float = 1.0) -> Partition:
    """What AOTAutograd calls with the joint graph; see `Options.memory_budget`."""

    def partition(
        joint: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        if gate.allows(UNIT, "joint"):
            with seams.memory_budget(memory_budget):
                return seams.min_cut_rematerialization_partition(joint, inputs, **kwargs)
        return seams.default_partition(joint, inputs, **kwargs)

    return partition
