"""Computes a maximum m and the sum of exp(x - m) in one sweep over a row.

The method is that of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018):
when the maximum grows, the sum so far is multiplied by exp(old - new). Softmax then reads a long
row twice instead of three times.
"""

from __future__ import annotations

from dataclasses import replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.expr import Call, Expr, Load, loads, rewrite

KIND = "sum_exp"
"""The kind of a node that sums exp(body - m), where m is the maximum of the same body."""


def online(kernel: FlatKernel) -> tuple[FlatKernel, dict[str, str]]:
    """The kernel with such sums made independent of the maximum, and a map sum -> maximum."""
    made = {n.name: n for n in kernel.nodes}
    partner: dict[str, str] = {}
    nodes: list[FlatNode] = []
    for node in kernel.nodes:
        found = _distances(node, made)
        if found is None or found[0] in partner.values():
            nodes.append(node)
        else:
            largest, body = found
            partner[node.name] = largest
            nodes.append(replace(node, kind=KIND, body=body))
    return replace(kernel, nodes=tuple(nodes)), partner


def _distances(node: FlatNode, made: dict[str, FlatNode]) -> tuple[str, Expr] | None:
    """(m, x) if a node is a sum of exp(x - m) and m is the maximum of x, else None."""
    if node.kind != "sum":
        return None
    body = _whole(node.body, made)
    if not (isinstance(body, Call) and body.name == "exp"):
        return None
    (distance,) = body.args
    if not (isinstance(distance, Call) and distance.name == "sub"):
        return None
    value, largest = distance.args
    if not (isinstance(largest, Load) and largest.buffer in made and not largest.index):
        return None
    source = made[largest.buffer]
    same = source.kind == "max" and _whole(source.body, made).key == value.key
    return (source.name, value) if same else None


def _whole(body: Expr, made: dict[str, FlatNode]) -> Expr:
    """Return a body with pointwise nodes of the same kernel substituted."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and not expr.index:
            node = made.get(expr.buffer)
            if node is not None and node.inside and not node.kind:
                return _whole(node.body, made)
        return expr

    return rewrite(body, change) if any(not load.index for load in loads(body)) else body
