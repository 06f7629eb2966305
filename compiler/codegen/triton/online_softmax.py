"""Computes a maximum m and the sum of exp(x - m) in one sweep over a row.

The method is that of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018):
when the maximum grows, the sum so far is multiplied by exp(old - new). Softmax then reads a long
row twice instead of three times, and logsumexp once instead of twice.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.expr import Call, Constant, Expr, Load, loads, rewrite

KIND, FINITE = "sum_exp", "sum_exp_finite"
"""The kind of a node that sums exp(body - m), where m is the maximum of the same body. With the
second one, as in logsumexp, the sum is that of exp(body) if m is infinite."""


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
            partner[node.name], kind, body = found
            nodes.append(replace(node, kind=kind, body=body))
    return replace(kernel, nodes=tuple(nodes)), partner


def _distances(node: FlatNode, made: dict[str, FlatNode]) -> tuple[str, str, Expr] | None:
    """(m, kind, x) if a node is a sum of exp(x - m) and m is the maximum of x, else None."""
    if node.kind != "sum":
        return None
    body = _whole(node.body, made)
    if not (isinstance(body, Call) and body.name == "exp"):
        return None
    (distance,) = body.args
    if not (isinstance(distance, Call) and distance.name == "sub"):
        return None
    value, subtracted = distance.args
    results = {e.key: e for e in loads(subtracted) if e.buffer in made and not e.index}
    if len(results) != 1:
        return None
    (largest,) = results.values()
    kind = {largest.key: KIND, _if_finite(largest).key: FINITE}.get(subtracted.key)
    source = made[largest.buffer]
    same = source.kind == "max" and _whole(source.body, made).key == value.key
    return (source.name, kind, value) if same and kind else None


def _if_finite(largest: Load) -> Expr:
    """A maximum, or 0 where it is infinite, as logsumexp computes it."""
    zero, infinity = (Constant(largest.dtype, value) for value in (0.0, math.inf))
    infinite = Call(torch.bool, "eq", (Call(largest.dtype, "abs", (largest,)), infinity))
    return Call(largest.dtype, "where", (infinite, zero, largest))


def _whole(body: Expr, made: dict[str, FlatNode]) -> Expr:
    """Return a body with pointwise nodes of the same kernel substituted."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and not expr.index:
            node = made.get(expr.buffer)
            if node is not None and node.inside and not node.kind:
                return _whole(node.body, made)
        return expr

    return rewrite(body, change) if any(not load.index for load in loads(body)) else body
