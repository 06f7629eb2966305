"""Fuses attention that a program writes as products and a softmax.

Matches softmax(q k^T * scale) v in float32 on a CPU, with four dimensions, without a mask or
dropout, if nothing else reads the scores and they are large (`SHORTEST`). Guarantees eager's layout
and results within rounding. The fused call gives zeros where all scores of a query are NaN or -inf;
queries and keys that cause such scores give NaN again afterwards.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.pregrad.node_values import example, example_tensor

MATMULS = (torch.matmul, operator.matmul, torch.bmm, "matmul", "bmm", "__matmul__")
SOFTMAXES = (torch.softmax, torch.nn.functional.softmax, "softmax")
TRANSPOSES = (torch.transpose, "transpose")

SHORTEST = 128
"""With fewer queries or keys, attention is not fused: its scores fit in the cache."""


def fused_attention(graph: fx.Graph) -> bool:
    """Replace softmax(q k^T * scale) v by one call of attention, which stores no scores."""
    changed = False
    for node in list(graph.nodes):
        found = _attention(node)
        if found is None or not _supported(node, *found[:3]):
            continue
        query, key, value, scale = found
        with graph.inserting_before(node):
            result = _one_call(graph, node, query, _swapped(graph, key), value, scale)
        node.replace_all_uses_with(result)
        _erase_chain(graph, node)
        changed = True
    return changed


def _one_call(
    graph: fx.Graph,
    node: fx.Node,
    query: fx.Node,
    key: fx.Node,
    value: fx.Node,
    scale: float,
) -> fx.Node:
    """Return the fused attention, with the layout of the node and NaN where the node has NaN."""

    def method(name: str, example: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = graph.call_method(name, args, kwargs)
        made.meta = {**node.meta, "example_value": example}
        return made

    attention = torch.nn.functional.scaled_dot_product_attention
    fused = graph.call_function(attention, (query, key, value), {"scale": scale})
    fused.meta = dict(node.meta)
    out, q, k = (example(n) for n in (node, query, key))
    finite = method("isfinite", q.bool(), query)
    whole = method("all", q[..., :1].bool(), finite, -1, keepdim=True)
    odd_queries = method("logical_not", q[..., :1].bool(), whole)
    nan = method("isnan", k.bool(), key)
    inner = method("any", k[..., :1].bool(), nan, -1, keepdim=True)
    odd_keys = method("any", k[:, :, :1, :1].bool(), inner, -2, keepdim=True)
    odd = method("logical_or", q[..., :1].bool(), odd_queries, odd_keys)
    laid_out = method("contiguous", out, fused)
    return method("masked_fill", out, laid_out, odd, float("nan"))


def _called(node: Any, targets: tuple[Any, ...]) -> bool:
    return isinstance(node, fx.Node) and node.target in targets


def _operands(node: fx.Node, targets: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """Return the two positional operands of a call to one of these targets."""
    if _called(node, targets) and len(node.args) == 2 and not node.kwargs:
        return node.args[0], node.args[1]
    return None


def _attention(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node, float] | None:
    """q, k transposed, v and the scale of an unfused attention that ends in a node."""
    outer = _operands(node, MATMULS)
    if outer is None or not _called(outer[0], SOFTMAXES) or len(outer[0].users) != 1:
        return None
    weights, value = outer
    scores = weights.args[0]
    if not _over_the_last(weights) or not isinstance(scores, fx.Node) or len(scores.users) != 1:
        return None
    scale = 1.0
    for targets, inverse in (((operator.mul, torch.mul, "mul"), False),
                             ((operator.truediv, torch.div, "div"), True)):  # fmt: skip
        scaled = _operands(scores, targets)
        if scaled and isinstance(scaled[0], fx.Node) and isinstance(scaled[1], int | float):
            if not scaled[1] or len(scaled[0].users) != 1:
                return None
            scores, scale = scaled[0], (1 / scaled[1] if inverse else float(scaled[1]))
            break
    inner = _operands(scores, MATMULS)
    if inner is None or not all(isinstance(n, fx.Node) for n in (*inner, value)):
        return None
    return inner[0], inner[1], value, scale


def _over_the_last(softmax: fx.Node) -> bool:
    """Return whether a softmax is over the last dimension and does not change the dtype."""
    given = [*softmax.args[1:2], *(v for k, v in softmax.kwargs.items() if k == "dim")]
    rest = {k: v for k, v in softmax.kwargs.items() if k not in ("dim", "_stacklevel")}
    others = [*softmax.args[2:], *rest.values()]
    result = example_tensor(softmax)
    rank = 0 if result is None else result.dim()
    return given in ([-1], [rank - 1]) and all(o is None or o == 3 for o in others)


def _supported(node: fx.Node, query: fx.Node, key: fx.Node, value: fx.Node) -> bool:
    """Whether attention can be fused: float32, on a CPU, [batch, heads, length, width], long."""
    tensors: list[Any] = [example_tensor(n) for n in (node, query, key, value)]
    if any(t is None or t.dim() != 4 or t.dtype != torch.float32 for t in tensors):
        return False
    if any(t.device.type != "cpu" or t.layout != torch.strided for t in tensors):
        return False
    _, q, k, v = tensors
    batches = {tuple(map(str, t.shape[:2])) for t in (q, k, v)}
    widths = {str(n) for n in (q.shape[3], k.shape[2], v.shape[3])}
    lengths = (q.shape[2], k.shape[3])
    short = any(isinstance(n, int) and n < SHORTEST for n in lengths)
    return len(batches) == len(widths) == 1 and str(k.shape[3]) == str(v.shape[2]) and not short


def _swapped(graph: fx.Graph, key: fx.Node) -> fx.Node:
    """Return the keys with their width as the last dimension."""
    if _called(key, TRANSPOSES) and isinstance(key.args[0], fx.Node):
        dims = {int(d) % 4 for d in key.args[1:]}  # type: ignore[arg-type] # numbers
        if dims == {2, 3}:
            return key.args[0]
    swapped = graph.call_method("transpose", (key, 2, 3))
    swapped.meta["example_value"] = example(key).transpose(2, 3)
    return swapped


def _erase_chain(graph: fx.Graph, node: fx.Node) -> None:
    """Remove an unused call, and the calls that only it used."""
    operands = node.all_input_nodes
    graph.erase_node(node)
    for operand in operands:
        if not operand.users and operand.op.startswith("call"):
            _erase_chain(graph, operand)
