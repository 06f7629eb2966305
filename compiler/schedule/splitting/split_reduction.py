"""fuse.split_reduction: split a reduction of many elements to few results among programs.

A GPU runs hundreds of programs at a time. A reduction with fewer rows is cut along an inner axis;
each piece is reduced to a partial result, and a second reduction combines these. This is legal for
reductions whose elements can be combined in any order.

A reduction of everything to one result, such as the mean of a softmax, may read results of
reductions or scans of rows. Its pieces are then rows too, so that one kernel computes both and the
elements between them are not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Reduction,
    Scan,
)
from tcdebug.compiler.ir.operations import SCANS, neutral
from tcdebug.compiler.schedule.splitting.pieces import (
    DividedReduction,
    Pieces,
    along,
    by_stride,
    pieces,
)
from tcdebug.compiler.schedule.splitting.split_softmax import (
    maximum_of_exponentials,
    split_exponentials,
)
from tcdebug.compiler.schedule.splitting.split_variance import split_distances, sum_of_the_mean

UNIT = "fuse.split_reduction"
DEVICES = ("cuda",)
KINDS = ("sum", "prod", "max", "min")
MANY = 1 << 12
"""From so many pieces of each row, they are combined in two steps."""
MANY_VARIANCES, FEW = 512, 64
"""From so many pieces each, several variances, but at most so many, are combined so, too."""


def split_reductions(graph: Graph, gate: Gate) -> tuple[Graph, dict[str, str]]:
    """Return the graph with reductions split that would give a GPU too few programs.

    Also returns the reductions of pieces, and those that combine their results: name -> name.
    """
    nodes: list[Node] = []
    buffers = graph.buffers()
    summed: dict[str, Rows] = {}
    divided: dict[str, DividedReduction] = {}
    parts: dict[str, str] = {}
    taken = {node.name for node in graph.nodes}
    made = {node.name: node for node in graph.nodes}
    means, maxima = _found(made, sum_of_the_mean), _found(made, maximum_of_exponentials)
    squared, exponentiated = frozenset(means.values()), frozenset(maxima.values())
    left: list[Node] = [*reversed(graph.nodes)]
    while left:
        node = left.pop()
        mean, maximum = (divided.get(found.get(node.name, "")) for found in (means, maxima))
        found = None
        if isinstance(node, Reduction) and _is_divisible(node):
            found = pieces(
                node, buffers, squares=node.name in squared, exponentials=node.name in exponentiated
            )
        if not (found or mean or maximum) or not gate.allows(UNIT, node.name):
            nodes.append(node)
            if (row := _rows(node, summed, buffers)) is not None:
                summed[node.name] = row
            continue
        assert isinstance(node, Reduction)
        name = fresh(f"{node.name}_piece", taken)
        parts[name] = node.name
        if mean is not None:
            first, last = split_distances(node, mean, name)
            buffers[name] = first.out
            nodes += (first, *_again(last, buffers, taken, MANY_VARIANCES))
        elif maximum is not None:
            first, last = split_exponentials(node, maximum, made, name)
            buffers[name] = first.out
            nodes += (first, *_again(last, buffers, taken))
        elif rows := _rows_of_operands(node, summed):
            first, last = _split_by_rows(node, rows, name)
            buffers[name] = first.out
            nodes.append(first)
            left.append(last)  # it may have many rows to combine
        else:
            assert found is not None
            divided[node.name] = halves = split(node, found, name)
            buffers[name] = halves.pieces.out
            nodes += (halves.pieces, *_again(halves.combined, buffers, taken))
    return replace(graph, nodes=tuple(nodes)), parts


def _is_divisible(node: Reduction) -> bool:
    """Return whether programs of a GPU combine elements, in any order."""
    return node.out.device.type in DEVICES and node.kind in KINDS


def _found(
    made: Mapping[str, Node], find: Callable[[Reduction, Mapping[str, Node]], Reduction | None]
) -> dict[str, str]:
    """Return the reductions for which another one is found: name -> the name of that."""
    pairs = ((n.name, find(n, made)) for n in made.values() if isinstance(n, Reduction))
    return {name: other.name for name, other in pairs if other is not None}


def fresh(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _again(
    node: Reduction, buffers: Mapping[str, Buffer], taken: set[str], many: int = MANY
) -> tuple[Node, ...]:
    """Divide a reduction that combines the results of many pieces.

    If it has few results, `many` is the least number of pieces of each: one program would take
    longer to combine the variances of pieces than all programs to read them.
    """
    inner, rows = (estimate(product(a.size for a in axes)) for axes in (node.reduced, node.axes))
    if inner < (many if 1 < rows <= FEW else MANY):
        return (node,)
    by = along(node, by_stride(node, buffers)[::-1], math.isqrt(inner))
    halves = split(node, by, fresh(f"{node.name}_piece", taken))
    return halves.pieces, halves.combined


def split(node: Reduction, by: Pieces, name: str) -> DividedReduction:
    """Return the reduction of each piece, and the reduction of their results."""
    body, inner = node.body, tuple(a for a in node.reduced if a not in by.whole)
    count, guarded = index_value(product(a.size for a in inner)), False
    numbers, again = by.whole, by.whole
    if by.cut is not None:
        body, piece, within = cut_axis(node, by.cut, by.count, turns=by.turns)
        guarded = not _is_exact(by.cut, by.count)
        others = product(a.size for a in inner if a != by.cut)
        length = index_value(within.size)
        if guarded:
            length = _length(by.cut, by.count, piece, within, turns=by.turns)
        count = length if others == 1 else call("mul", length, index_value(others))
        inner = tuple(within if a == by.cut else a for a in inner)
        numbers, again = (*by.whole, piece), (*by.whole, Axis(f"{by.cut.name}_again", piece.size))
    axes = (*node.axes, *numbers) if by.inside else (*numbers, *node.axes)
    where = tuple(to_index(a) for a in axes)
    size = tuple(a.size for a in axes)
    part = Buffer.contiguous(name, node.out.dtype, size, node.out.device)
    read = (*node.axes, *again) if by.inside else (*again, *node.axes)
    load = Load(part.dtype, name, tuple(map(to_index, read)))
    first = replace(node, out=part, axes=axes, reduced=inner, index=where, body=body)
    last = replace(node, reduced=again, body=load)
    return DividedReduction(first, last, count, guarded)


def _length(axis: Axis, count: int, piece: Axis, within: Axis, *, turns: bool) -> Expr:
    """Return the number of elements of a piece along the axis that is cut."""
    if turns:
        return index_value((axis.size - piece + (count - 1)) // to_index(count))
    left = index_value(axis.size - to_index(piece) * within.size)
    return call("minimum", call("maximum", left, index_value(ZERO)), index_value(within.size))


def _is_exact(axis: Axis, count: int) -> bool:
    return axis.size.constant is not None and axis.size.constant % count == 0


def cut_axis(
    node: Reduction | Scan, axis: Axis, count: int, *, turns: bool = False, multiple: int = 1
) -> tuple[Expr, Axis, Axis]:
    """Divide an axis: return the body, the axis of the pieces, and the axis within a piece.

    If `count` does not divide the axis, the length of a piece is a `multiple`. Where pieces end
    beyond the axis, the body is the neutral element.
    """
    piece = Axis(f"{axis.name}_piece", to_index(count))
    step = 1 if _is_exact(axis, count) else multiple
    longest = (axis.size + (count * step - 1)) // to_index(count * step) * step
    within = Axis(f"{axis.name}_within", longest)
    place = to_index(piece) * within.size + to_index(within)
    if turns:
        place = to_index(within) * to_index(count) + to_index(piece)
    values: dict[Atom, Index] = {axis: place}
    body = node.body.substitute(values)
    if not _is_exact(axis, count):
        length = _length(axis, count, piece, within, turns=turns)
        inside = call("lt", index_value(to_index(within)), length)
        body = Guarded(body.dtype, inside, body, neutral_of(node))
    return body, piece, within


def neutral_of(node: Reduction | Scan) -> Expr:
    """Return the neutral element of a reduction or scan."""
    kind = SCANS.get(node.kind, node.kind)
    return constant(node.body.dtype, neutral(kind, node.body.dtype))


@dataclass(frozen=True)
class Rows:
    """The rows that a value is computed from: their length, and the dimensions along a scan."""

    length: Index
    along: frozenset[int] = frozenset()


def _rows(node: Node, summed: Mapping[str, Rows], buffers: Mapping[str, Buffer]) -> Rows | None:
    """Return the rows that the elements of a value are computed from; None if unknown."""
    if isinstance(node, Reduction):
        return Rows(product(a.size for a in node.reduced))
    if isinstance(node, Scan):
        over = frozenset(node.reduced)
        along = frozenset(d for d, index in enumerate(node.index) if index.axes & over)
        return Rows(product(a.size for a in node.reduced), along)
    if not isinstance(node, Pointwise):
        return None
    found = {
        summed[load.buffer]
        for load in loads(node.body)
        if load.buffer in summed
        and buffers[load.buffer].numel == node.out.numel
        and (not summed[load.buffer].along or load.index == node.index)
    }
    return found.pop() if len(found) == 1 else None


def _rows_of_operands(node: Reduction, summed: Mapping[str, Rows]) -> tuple[Axis, ...]:
    """Return the axes of the rows that operands of a reduction to one result are computed from.

    Empty if there are none, or if they are computed from different rows.
    """
    if node.axes:
        return ()
    found: set[tuple[Axis, ...]] = set()
    for load in loads(node.body):
        if load.buffer not in summed:
            continue
        row = summed[load.buffer]
        across = [index.axes for d, index in enumerate(load.index) if d not in row.along]
        used = frozenset[Axis]().union(*across)
        inner = product(a.size for a in node.reduced if a not in used)
        rows = tuple(a for a in node.reduced if a in used)
        found.add(rows if inner != 1 and inner == row.length else ())
    return found.pop() if len(found) == 1 else ()


def _split_by_rows(
    node: Reduction, rows: tuple[Axis, ...], name: str
) -> tuple[Reduction, Reduction]:
    """Return the reduction of each row, and the reduction of their results."""
    size = tuple(a.size for a in rows)
    part = Buffer.contiguous(name, node.out.dtype, size, node.out.device)
    where = tuple(to_index(a) for a in rows)
    inner = tuple(a for a in node.reduced if a not in rows)
    first = replace(node, out=part, axes=rows, reduced=inner, index=where)
    load = Load(part.dtype, name, where)
    return first, replace(node, reduced=rows, body=load)
