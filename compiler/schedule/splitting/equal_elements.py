"""fuse.equal_elements: reduce elements that are equal along an axis once.

An expanded tensor has the same elements at each point of an axis, such as the gradient of a sum.
Their sum is a product with the number of points, and their maximum any of them. Where all rows are
equal, the result of one is that of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.build import call, cast, constant
from tcdebug.compiler.ir.expr import Expr, Load, rewrite
from tcdebug.compiler.ir.graph import (
    Buffer,
    Extern,
    Graph,
    LoopNode,
    Node,
    Pointwise,
    Reduction,
    reads,
    without_dead_nodes,
)
from tcdebug.compiler.ir.operations import FLOATS
from tcdebug.compiler.schedule.splitting.split_reduction import fresh

UNIT = "fuse.equal_elements"
SUMS = (*FLOATS, torch.int64)
"""The dtypes whose sums are computed as products."""
EXTREMES = ("max", "min")
PLACES = ("argmax", "argmin")
SAVED, SAVED_ON_GPU = 1 << 16, 1 << 21
"""The fewest elements of equal rows that take longer to reduce than one result to copy."""


@dataclass(frozen=True)
class DistinctRow:
    """The results of distinct rows, and the dimensions of all results along which these lie."""

    out: Buffer
    dimensions: tuple[int, ...]


def reduce_equal_elements_once(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with no reduction over an axis along which all elements are equal.

    Reductions of equal rows are those of one row. What reads their results reads those of one row,
    and what needs all of them has a copy. Rows stay as they are if a loop over all elements reads
    the results.
    """
    buffers = graph.buffers()
    rows: dict[str, DistinctRow] = {}
    nodes: list[Node] = []
    taken, large = {node.name for node in graph.nodes}, _read_by_large(graph)
    for node in graph.nodes:
        if rows and not isinstance(node, Extern):
            node = _reading_rows(node, rows)
        by_rows = node.name not in large
        once = _once(node, buffers, by_rows=by_rows) if isinstance(node, Reduction) else None
        if once is None or not gate.allows(UNIT, node.name):
            nodes.append(node)
            continue
        distinct = _one_row(once, fresh(f"{node.name}_row", taken)) if by_rows else None
        if distinct is None:
            nodes.append(once)
            continue
        first, copy, rows[node.name] = distinct
        buffers[first.name] = first.out
        nodes += (first, copy)
    graph = replace(graph, nodes=tuple(nodes))
    return without_dead_nodes(graph) if rows else graph


def _read_by_large(graph: Graph) -> frozenset[str]:
    """Return the reductions whose results are read by a loop over as many elements.

    That loop, such as the division of a softmax, may as well reduce all rows.
    """
    sizes = {n.name: _points(n) for n in graph.nodes if isinstance(n, Reduction)}
    return frozenset(
        name
        for node in graph.nodes
        if isinstance(node, Pointwise)
        for name in reads(node)
        if name in sizes and _points(node) * 2 > sizes[name]
    )


def _points(node: LoopNode) -> int:
    return estimate(product(a.size for a in (*node.axes, *node.over)))


def _once(
    node: Reduction, buffers: Mapping[str, Buffer], *, by_rows: bool
) -> Reduction | Pointwise | None:
    """Return a node that reduces equal elements once; None if there are none.

    With `by_rows`, also one whose elements differ but whose rows are equal.
    """
    first = replace(node, body=rewrite(node.body, lambda e: _at_first(e, buffers)))
    shorter = _without_equal_elements(first)
    if shorter is None and by_rows and _equal_rows(first):
        return first
    return shorter


def _without_equal_elements(node: Reduction) -> Reduction | Pointwise | None:
    """Return a node without the axes along which all elements are equal; None if it keeps all."""
    body = node.body
    equal = [a for a in node.reduced if a not in body.axes and (a.size.constant or 0) > 1]
    left = tuple(a for a in node.reduced if a not in equal)
    if not equal:
        return None
    if node.kind == "sum" and body.dtype in SUMS:
        body = call("mul", body, constant(body.dtype, product(a.size for a in equal).constant or 0))
    elif node.kind in PLACES and not left:
        body = constant(node.out.dtype, 0)
    elif node.kind not in EXTREMES:
        return None
    if left:
        return replace(node, reduced=left, body=body)
    if node.kind == "sum":
        body = call("add", body, constant(body.dtype, 0))  # a sum of negative zeros is positive
    return Pointwise(node.out, node.axes, node.index, cast(body, node.out.dtype), node.origin)


def _equal_rows(node: Reduction) -> tuple[Axis, ...]:
    """Return the outer axes along which all rows are equal, if they have many elements."""
    equal = tuple(a for a in node.axes if a not in node.body.axes)
    rows, length = (estimate(product(a.size for a in axes)) for axes in (node.axes, node.reduced))
    distinct = estimate(product(a.size for a in node.axes if a not in equal))
    worth = SAVED if node.out.device.type == "cpu" else SAVED_ON_GPU
    return equal if (rows - distinct) * length >= worth else ()


def _one_row(
    node: Reduction | Pointwise, name: str
) -> tuple[Reduction, Pointwise, DistinctRow] | None:
    """Return the reduction of distinct rows, and the copy for all; None if rows differ."""
    if not isinstance(node, Reduction) or not (equal := _equal_rows(node)):
        return None
    axes = tuple(a for a in node.axes if a not in equal)
    size, where, out = tuple(a.size for a in axes), tuple(map(to_index, axes)), node.out
    if not set(where) <= set(node.index):  # results that lie along two axes at once
        return None
    row = Buffer.contiguous(name, out.dtype, size, out.device)
    copy = Pointwise(out, node.axes, node.index, Load(out.dtype, name, where), node.origin)
    distinct = replace(node, out=row, axes=axes, index=where)
    return distinct, copy, DistinctRow(row, tuple(node.index.index(w) for w in where))


def _reading_rows(node: LoopNode, rows: Mapping[str, DistinctRow]) -> LoopNode:
    """Return a node that reads the results of distinct rows, except where it overwrites them."""
    kept = node.into if isinstance(node, Pointwise) else ""
    others = {name: row for name, row in rows.items() if name != kept}
    return replace(node, body=rewrite(node.body, lambda e: _of_row(e, others)))


def _of_row(expr: Expr, rows: Mapping[str, DistinctRow]) -> Expr:
    """Return a load of a result as a load of that of a distinct row."""
    row = rows.get(expr.buffer) if isinstance(expr, Load) else None
    if row is None or not isinstance(expr, Load):
        return expr
    return Load(expr.dtype, row.out.name, tuple(expr.index[d] for d in row.dimensions))


def _at_first(expr: Expr, buffers: Mapping[str, Buffer]) -> Expr:
    """Return a load at the first place of each dimension along which memory is not left."""
    if not isinstance(expr, Load) or expr.buffer not in buffers:
        return expr
    strides = buffers[expr.buffer].stride
    first = [
        ZERO if stride == ZERO and all(isinstance(a, Axis) for a in index.atoms) else index
        for index, stride in zip(expr.index, strides, strict=True)
    ]
    return replace(expr, index=tuple(first))
