"""Removes arithmetic that leaves its left operand unchanged.

Matches an operator with the number that is neutral for it (`NEUTRAL`), and an involution of the
same involution. The operand replaces the call if dtype, device, size and strides are the same.
Guarantees the same bits, NaN, inf and -0.0 included; so `x + 0` stays. A call that the graph
returns stays, because a caller may write to the result.
"""

from __future__ import annotations

import torch
from torch import fx

from tcdebug.compiler.passes.replacement import escaping, replace_by_equal, same_tensor

aten = torch.ops.aten

NEUTRAL = {
    # without x + 0, which turns -0.0 into 0.0
    aten.sub.Tensor: 0,
    aten.mul.Tensor: 1,
    aten.div.Tensor: 1,
    aten.pow.Tensor_Scalar: 1,
    aten.bitwise_or.Scalar: 0,
    aten.bitwise_xor.Scalar: 0,
}
"""Operator -> the right operand for which it returns the left one, even if NaN, inf or -0.0."""

INVOLUTIONS = (aten.neg.default, aten.bitwise_not.default, aten.logical_not.default)


def algebraic(graph: fx.Graph) -> bool:
    """Remove arithmetic that changes no bit: x * 1, x - 0, x / 1, x ** 1, -(-x), not not x."""
    returned, kept = set(graph.output_node().all_input_nodes), escaping(graph)
    changed = False
    for node in list(graph.nodes):
        source = _unchanged(node)
        if source is None or node in returned or not same_tensor(node, source):
            continue
        if node in kept and (source in kept or source.op != "call_function"):
            continue
        replace_by_equal(graph, node, source, kept)
        changed = True
    return changed


def _unchanged(node: fx.Node) -> fx.Node | None:
    """Return the tensor that the value of a node equals, if there is one."""
    operand = node.args[0] if node.args else None
    if not isinstance(operand, fx.Node):
        return None
    if node.target in NEUTRAL:
        other = node.args[1]
        plain = isinstance(other, int | float) and not isinstance(other, bool)
        return operand if plain and other == NEUTRAL[node.target] else None
    if node.target in INVOLUTIONS and operand.target is node.target:
        inner = operand.args[0]
        return inner if isinstance(inner, fx.Node) else None
    return None
