"""Divides a sum of exponentials, as softmax and logsumexp compute it, in the pieces of its maximum.

The exponentials are those of the distances from the maximum of all elements. In a piece they are
those from its own maximum, so that one kernel computes both and reads each element once; how far
that is from the maximum of all elements is multiplied in afterwards, as in
`codegen/triton/one_sweep.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tcdebug.compiler.ir.build import call, constant
from tcdebug.compiler.ir.expr import Call, Expr, Load, loads
from tcdebug.compiler.ir.graph import Node, Pointwise, Reduction
from tcdebug.compiler.schedule.splitting.pieces import DividedReduction


def exponential(body: Expr) -> tuple[Expr, Expr] | None:
    """Return x and y if a body is exp(x - y), else None."""
    if not (isinstance(body, Call) and body.name == "exp"):
        return None
    (distance,) = body.operands
    if not (isinstance(distance, Call) and distance.name == "sub"):
        return None
    value, subtracted = distance.operands
    return value, subtracted


def if_finite(largest: Expr) -> Expr:
    """Return a maximum, or 0 where it is infinite, as logsumexp computes it."""
    zero, infinity = (constant(largest.dtype, value) for value in (0.0, math.inf))
    return call("where", call("eq", call("abs", largest), infinity), zero, largest)


def maximum_of_exponentials(node: Reduction, made: Mapping[str, Node]) -> Reduction | None:
    """Return the maximum of x if a node is a sum of exp(x - maximum), else None.

    `made` has the nodes of the graph. The exponentials may be a node of their own.
    """
    found = exponential(_summed(node, made)) if node.kind == "sum" else None
    if found is None:
        return None
    value, subtracted = found
    read = {load.key: load for load in loads(subtracted)}
    if len(read) != 1:
        return None
    (load,) = read.values()
    largest = made.get(load.buffer)
    if not isinstance(largest, Reduction) or largest.kind != "max":
        return None
    if subtracted.key not in (load.key, if_finite(load).key):
        return None
    same = (largest.axes, largest.reduced) == (node.axes, node.reduced)
    each = same and load.index == largest.index and value.key == largest.body.key
    return largest if each else None


def split_exponentials(
    node: Reduction, maximum: DividedReduction, made: Mapping[str, Node], name: str
) -> tuple[Reduction, Reduction]:
    """Return the exponentials of each piece relative to its maximum, and of all to the node's.

    `maximum` is that maximum in pieces, and `name` the name of the first result. The maximum of a
    piece counts as 0 if it is infinite: the exponentials of a piece that has nothing but -inf are
    0 then and not NaN, and what follows from an infinite maximum of all elements follows still.
    """
    first, last = maximum.pieces, maximum.combined
    found = exponential(_summed(node, made))
    assert found is not None and isinstance(last.body, Load)
    _, subtracted = found
    own = if_finite(Load(first.out.dtype, first.name, first.index))
    part = replace(first.out, name=name, dtype=node.out.dtype)
    body = call("exp", call("sub", first.body, own))
    within = replace(first, kind="sum", out=part, body=body, origin=node.origin)

    scale = call("exp", call("sub", last.body, subtracted))
    total = call("mul", Load(part.dtype, name, last.body.index), scale)
    return within, replace(node, reduced=last.reduced, body=total)


def _summed(node: Reduction, made: Mapping[str, Node]) -> Expr:
    """Return what a node reduces, computed from the operands of a pointwise node that it reads.

    An operand that some node overwrites may have changed when the reduction reads it.
    """
    body = node.body
    source = made.get(body.buffer) if isinstance(body, Load) else None
    if not isinstance(body, Load) or type(source) is not Pointwise or source.into:
        return body
    overwritten = {n.into for n in made.values() if isinstance(n, Pointwise)}
    changes = any(load.buffer in overwritten for load in loads(source.body))
    return body if changes else source.at(body.index)
