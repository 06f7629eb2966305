"""The partition stage: the joint graph becomes forward and backward.

partition.min_cut recomputes cheap values in backward rather than saving them. Held back, torch's
default partition saves what backward reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.gate import Gate

UNIT = "partition.min_cut"
aten = torch.ops.aten

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def partitioner(gate: Gate, memory_budget: float = 1.0) -> Partition:
    """What AOTAutograd calls with the joint graph; see `Options.memory_budget`."""

    def partition(
        joint: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        if gate.allows(UNIT, "joint"):
            with seams.memory_budget(memory_budget):
                parts = seams.min_cut_rematerialization_partition(joint, inputs, **kwargs)
            _distinct(parts[0])
            return parts
        return seams.default_partition(joint, inputs, **kwargs)

    return partition


def _distinct(forward: fx.GraphModule) -> None:
    """Results of two equal calls, which the partition makes one, are tensors of their own again.

    It leaves a call alone whose result is returned, but not one of several results: those are
    taken out of one tuple then, and who writes to one would write to the other.
    """
    output = forward.graph.output_node()
    given: Any = output.args[0]
    results: list[Any] = list(given)
    taken: dict[object, fx.Node] = {}
    for place, result in enumerate(results):
        if not isinstance(result, fx.Node) or result.target is not operator.getitem:
            continue
        if taken.setdefault(result.args, result) is result:
            continue
        with forward.graph.inserting_before(output):
            results[place] = forward.graph.call_function(aten.clone.default, (result,))
        results[place].meta = dict(result.meta)
    if results != list(given):
        output.args = (type(given)(results),)
        forward.recompile()
