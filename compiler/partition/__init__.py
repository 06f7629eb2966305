"""Partitions the joint graph into forward and backward.

With partition.min_cut, backward recomputes cheap values instead of saving them; equal calls are
merged first, under passes.common_subexpressions. Without it, torch's default partition saves every
value that backward reads. In both cases backward reads inputs as they were before forward wrote to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.compiler import seams
from tcdebug.compiler.effects import may_share_memory, written_operands
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.partition import narrow_places
from tcdebug.compiler.partition.saved_tensors import count_visible
from tcdebug.compiler.passes.common_subexpressions import common_subexpressions

UNIT = "partition.min_cut"
NOOPS = "passes.noop_elimination"
EQUAL_CALLS = "passes.common_subexpressions"
aten = torch.ops.aten

Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def partitioner(
    gate: Gate, memory_budget: float = 1.0, prepare: Callable[[fx.GraphModule], None] | None = None
) -> Partition:
    """Return the `partition_fn` for AOTAutograd. For `memory_budget` see `Options`.

    `prepare` may change the joint graph before it is partitioned.
    """

    def partition(
        joint: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        if prepare is not None:
            prepare(joint)
        if gate.allows(UNIT, "joint"):
            if gate.allows(NOOPS, "joint"):
                _without_detached(joint.graph)
            if gate.allows(EQUAL_CALLS, "joint"):
                common_subexpressions(joint.graph)
            with seams.min_cut(memory_budget):
                parts = seams.min_cut_rematerialization_partition(joint, inputs, **kwargs)
        else:
            parts = seams.default_partition(joint, inputs, **kwargs)
        visible: int = kwargs["num_fwd_outputs"]
        narrow_places.narrow(*parts, visible, gate)
        _saved_as_they_were(parts[0], visible)
        count_visible(*parts, visible)
        return parts

    return partition


def _without_detached(joint: fx.Graph) -> None:
    """Remove `detach` calls: they have no effect in a joint graph, and min-cut cannot cross them.

    Those that are returned stay, because AOTAutograd already knows which results need gradients.
    """
    for node in joint.find_nodes(op="call_function", target=aten.detach.default):
        source = node.args[0]
        node.replace_all_uses_with(source, delete_user_cb=lambda user: user.op != "output")
        if not node.users:
            joint.erase_node(node)


def _saved_as_they_were(forward: fx.GraphModule, outputs: int) -> None:
    """Save copies of tensors that forward writes to. Saved tensors follow `outputs` results.

    A partition that recomputes a value saves the inputs of its computation, and forward writes to
    its inputs at the end.
    """
    output = forward.graph.output_node()
    given: Any = output.args[0]
    results: list[Any] = list(given)
    writes = [n for n in forward.graph.nodes if any(written_operands(n))]
    written = {operand for write in writes for operand in written_operands(write)}
    for place, result in enumerate(results[outputs:], outputs):
        if not isinstance(result, fx.Node) or written.isdisjoint(_shared_with(result)):
            continue
        with forward.graph.inserting_before(writes[0]):
            results[place] = forward.graph.call_function(aten.clone.default, (result,))
        results[place].meta = dict(result.meta)
    if results != list(given):
        output.args = (type(given)(results),)
        forward.recompile()


def _shared_with(node: fx.Node) -> set[fx.Node]:
    """Return a tensor, and the tensors that it may be a view of."""
    found: set[fx.Node] = set()
    left = [node] if isinstance(node.meta.get("val"), torch.Tensor) else []
    while left:
        found.add(latest := left.pop())
        if latest.op == "call_function" and may_share_memory(latest):
            left.extend(n for n in latest.all_input_nodes if n not in found)
    return found
