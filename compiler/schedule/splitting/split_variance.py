"""Divides a sum of squared distances from a mean in the pieces of the sum that the mean is of.

One kernel computes the pieces of both and reads each element once. A piece has the distances from
its own mean; how far that is from the mean of all elements is added afterwards. The formula is that
of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
Variances" (1979).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from tcdebug.compiler.ir.arithmetic.index import Atom, Index
from tcdebug.compiler.ir.build import call, cast, constant
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, Load, loads
from tcdebug.compiler.ir.graph import Node, Reduction
from tcdebug.compiler.schedule.splitting.pieces import DividedReduction


def squared_distance(body: Expr) -> tuple[Expr, Expr] | None:
    """Return x and y if a body is the square of x - y, else None."""
    if not isinstance(body, Call) or body.name != "mul":
        return None
    distance, again = body.operands
    if distance.key != again.key or not isinstance(distance, Call) or distance.name != "sub":
        return None
    value, subtracted = distance.operands
    return value, subtracted


def sum_of_the_mean(node: Reduction, made: Mapping[str, Node]) -> Reduction | None:
    """Return the sum of a mean if a node adds up squared distances from that mean, else None.

    `made` has the nodes of the graph.
    """
    parts = squared_distance(node.body) if node.kind == "sum" else None
    if parts is None:
        return None
    value, mean = parts
    read = {load.buffer for load in loads(mean)}
    found = made.get(read.pop()) if len(read) == 1 else None
    if not isinstance(found, Reduction) or not mean.axes.isdisjoint(node.reduced):
        return None
    same = (found.axes, found.reduced) == (node.axes, node.reduced)
    return found if same and cast(value, found.body.dtype).key == found.body.key else None


def split_distances(
    node: Reduction, total: DividedReduction, name: str
) -> tuple[Reduction, Reduction]:
    """Return the squared distances of each piece from its mean, and of all from the node's mean.

    `total` is the divided sum of that mean, and `name` the name of the first result.
    """
    first, last = total.pieces, total.combined
    assert isinstance(last.body, Load) and isinstance(node.body, Call)
    dtype = node.body.dtype
    count = cast(total.count, first.body.dtype)
    elements = call("maximum", count, constant(first.body.dtype, 1))
    own_mean = call("div", Load(first.body.dtype, first.name, first.index), elements)
    part = replace(first.out, name=name, dtype=node.out.dtype)
    within = replace(first, out=part, body=_from(own_mean, total, dtype), origin=node.origin)

    (_, mean) = node.body.operands[0].operands
    values: dict[Atom, Index] = dict(zip(first.axes, last.body.index, strict=True))
    mean_of_piece = cast(call("div", last.body, elements.substitute(values)), dtype)
    between = call("mul", _squared(mean_of_piece, mean), cast(count.substitute(values), dtype))
    body = call("add", Load(part.dtype, name, last.body.index), between)
    return within, replace(node, reduced=last.reduced, body=body)


def _from(mean: Expr, total: DividedReduction, dtype: torch.dtype) -> Expr:
    """Return the squared distance of an element of a piece from a mean; 0 where it has none."""
    body = total.pieces.body
    if not total.guarded:
        return cast(_squared(body, mean), dtype)
    assert isinstance(body, Guarded)
    inside = cast(_squared(body.body, mean), dtype)
    return Guarded(dtype, body.condition, inside, constant(dtype, 0))


def _squared(a: Expr, b: Expr) -> Expr:
    distance = call("sub", a, b)
    return call("mul", distance, distance)
