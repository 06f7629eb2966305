"""Computes what depends on a maximum or a mean of a row in the sweep that finds it.

A maximum m and the sum of exp(x - m) need one sweep by the method of Milakov and Gimelshein,
"Online normalizer calculation for softmax" (2018): when the maximum grows, the sum so far is
multiplied by exp(old - new). A sum of squared distances from a mean is that from the mean so far,
updated by the formula of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances" (1979). A long row is then read once less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.expr import Constant, Expr, Guarded, Load, loads, rewrite
from tcdebug.compiler.schedule.splitting.split_softmax import exponential, if_finite
from tcdebug.compiler.schedule.splitting.split_variance import squared_distance

KIND, FINITE = "sum_exp", "sum_exp_finite"
"""The kind of a node that sums exp(body - m), where m is the maximum of the same body. With the
second one, as in logsumexp, the sum is that of exp(body) if m is infinite."""
SQUARES = "sum_squares"
"""The kind of a node that sums the squares of the distances of its body from a mean."""

EXACT = (torch.float32, torch.float64)
"""The dtypes of such squares. In others, each operation rounds as in eager."""


@dataclass(frozen=True)
class OneSweep:
    """A kernel in which such nodes do not read the maximum or the mean."""

    kernel: FlatKernel
    maxima: Mapping[str, str]
    """Sum of exponentials -> the maximum of the same body."""
    sums: Mapping[str, str]
    """Sum of squares -> the sum of the same body."""
    means: Mapping[str, Expr]
    """Sum of squares -> the mean, which is computed from that sum."""


def in_one_sweep(kernel: FlatKernel) -> OneSweep:
    """Return the kernel with such nodes."""
    made = {n.name: n for n in kernel.nodes}
    maxima: dict[str, str] = {}
    sums: dict[str, str] = {}
    means: dict[str, Expr] = {}
    nodes: list[FlatNode] = []
    for node in kernel.nodes:
        if node.kind == "sum":
            body = _whole(node.body, made)
            exponentials = _exponentials(body, made)
            distances = _distances(node, body, made, frozenset(kernel.inner))
            if exponentials and exponentials[0] not in maxima.values():
                maxima[node.name], kind, value = exponentials
                node = replace(node, kind=kind, body=value)
            elif distances and distances[0] not in sums.values():
                sums[node.name], value, means[node.name] = distances
                node = replace(node, kind=SQUARES, body=value)
        nodes.append(node)
    return OneSweep(replace(kernel, nodes=tuple(nodes)), maxima, sums, means)


def _exponentials(body: Expr, made: Mapping[str, FlatNode]) -> tuple[str, str, Expr] | None:
    """(m, kind, x) if a body is exp(x - m) and m is the maximum of x, else None."""
    if (found := exponential(body)) is None:
        return None
    value, subtracted = found
    if (largest := _result(subtracted, made)) is None:
        return None
    kind = {largest.key: KIND, if_finite(largest).key: FINITE}.get(subtracted.key)
    source = made[largest.buffer]
    same = source.kind == "max" and _whole(source.body, made).key == value.key
    return (source.name, kind, value) if same and kind else None


def _distances(
    node: FlatNode, body: Expr, made: Mapping[str, FlatNode], inner: frozenset[Axis]
) -> tuple[str, Expr, Expr] | None:
    """(sum, x, mean) if a node sums the squared distances of x from a mean, else None.

    The mean is computed from the sum of x.
    """
    if node.across or node.body.dtype not in EXACT:
        return None
    guard = body if isinstance(body, Guarded) and _is_zero(body.other) else None
    found = squared_distance(guard.body if guard else body)
    if found is None:
        return None
    value, mean = found[0], _whole(found[1], made, outside=True)
    if guard:
        value = Guarded(value.dtype, guard.condition, value, Constant(value.dtype, 0.0))
    if (total := _result(mean, made)) is None or mean.axes & inner:
        return None
    source = made[total.buffer]
    same = source.kind == "sum" and _whole(source.body, made).key == value.key
    return (source.name, value, mean) if same else None


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Constant) and expr.value == 0


def _result(expr: Expr, made: Mapping[str, FlatNode]) -> Load | None:
    """Return the load of the one result of the kernel that an expression reads, if it is one."""
    found = {e.key: e for e in loads(expr) if e.buffer in made and not e.index}
    return found.popitem()[1] if len(found) == 1 else None


def _whole(body: Expr, made: Mapping[str, FlatNode], *, outside: bool = False) -> Expr:
    """Return a body with pointwise nodes of the same kernel substituted, or also `outside` ones."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and not expr.index:
            node = made.get(expr.buffer)
            if node is not None and (node.inside or outside) and not node.kind:
                return _whole(node.body, made, outside=outside)
        return expr

    return rewrite(body, change) if any(not load.index for load in loads(body)) else body
