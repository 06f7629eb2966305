"""fuse.split_reduction: split a reduction of many elements to few results among programs.

A GPU runs hundreds of programs at a time. A reduction with fewer rows is cut along an inner axis;
each piece is reduced to a partial result, and a second reduction combines these. This is legal for
reductions whose elements can be combined in any order.

A reduction of everything to one result, such as the mean of a softmax, may read results of
reductions of rows. Its pieces are then rows too, so that one kernel computes both and the elements
between them are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.expr import Guarded, Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Reduction,
    contiguous_strides,
)
from tcdebug.compiler.ir.operations import neutral
from tcdebug.compiler.schedule.cost import itemsize

UNIT = "fuse.split_reduction"
DEVICES = ("cuda",)
KINDS = ("sum", "prod", "max", "min")
PROGRAMS = 132 * 8
"""The number of programs of 8 warps that keeps a large GPU busy."""
PIECE = 4096
"""The fewest elements that a program should combine."""
COLUMN_BYTES = 128
"""Bytes of neighbouring results that one program computes if the inner axes are strided."""


def split_reductions(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with reductions split that would give a GPU too few programs."""
    nodes: list[Node] = []
    buffers = graph.buffers()
    summed: dict[str, Index] = {}  # value -> the length of the rows that it is reduced from
    taken = {node.name for node in graph.nodes}
    left: list[Node] = [*reversed(graph.nodes)]
    while left:
        node = left.pop()
        found = _pieces(node, buffers) if isinstance(node, Reduction) else None
        if found is None or not gate.allows(UNIT, node.name):
            nodes.append(node)
            if (length := _row_length(node, summed, buffers)) is not None:
                summed[node.name] = length
            continue
        assert isinstance(node, Reduction)
        name = f"{node.name}_piece"
        while name in taken:
            name += "_"
        taken.add(name)
        if rows := _rows_of_operands(node, summed):
            first, last = _split_by_rows(node, rows, name)
            buffers[name] = first.out
            nodes.append(first)
            left.append(last)  # it may have many rows to combine
        else:
            nodes += _split(node, *found, name)
    return replace(graph, nodes=tuple(nodes))


def _pieces(node: Reduction, buffers: Mapping[str, Buffer]) -> tuple[Axis, int] | None:
    """Return the axis to cut and the number of pieces; None leaves the node as it is."""
    if node.out.device.type not in DEVICES or node.kind not in KINDS:
        return None
    rows = estimate(product(a.size for a in node.axes))
    inner = estimate(product(a.size for a in node.reduced))
    if rows == 0 or inner == 0:
        return None
    across = reads_across(node, buffers)
    together = min(COLUMN_BYTES // itemsize(_source(node)), rows) if across else 1
    programs = max(1, rows // together)
    busy = PROGRAMS * 2 if across else PROGRAMS  # programs of 4 warps if across
    wanted = min(busy // programs, inner * together // PIECE)
    if wanted < 4 or (rows >= PROGRAMS * 8 and not across):
        return None
    exact = [
        (abs(n - wanted), -estimate(a.size), n, a)
        for a in node.reduced
        for n in _divisors(a.size.constant, wanted)
    ]
    if exact:
        *_, pieces, cut = min(exact, key=lambda found: found[:3])
        return cut, pieces
    longest = max(node.reduced, key=lambda a: estimate(a.size))
    pieces = min(wanted, estimate(longest.size) // 2)
    return (longest, pieces) if pieces >= 2 else None


def _source(node: Reduction) -> torch.dtype:
    """Return the widest dtype that a reduction reads."""
    read = [load.dtype for load in loads(node.body) if load.index]
    return max(read, key=itemsize, default=node.body.dtype)


def reads_across(node: Reduction, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether neighbouring results read neighbouring elements in memory."""
    along = 0
    for load in loads(node.body):
        address = buffers[load.buffer].address(load.index)
        along += sum(address.coefficient(a) == 1 for a in node.axes)
        along -= sum(address.coefficient(a) == 1 for a in node.reduced)
    return along > 0


def _divisors(size: int | None, wanted: int) -> list[int]:
    """Return the divisors of a size from half to twice the wanted number of pieces."""
    if size is None:
        return []
    return [n for n in range(max(2, wanted // 2), wanted * 2 + 1) if size % n == 0]


def _split(node: Reduction, cut: Axis, pieces: int, name: str) -> tuple[Reduction, Reduction]:
    """Return the reduction of each piece of an axis, and the reduction of their results."""
    piece = Axis(f"{cut.name}_piece", to_index(pieces))
    length = (cut.size + (pieces - 1)) // to_index(pieces)
    within = Axis(f"{cut.name}_within", length)
    place = to_index(piece) * length + to_index(within)
    values: dict[Atom, Index] = {cut: place}
    body = node.body.substitute(values)
    if cut.size.constant is None or cut.size.constant % pieces:
        inside = call("lt", index_value(place), index_value(cut.size))
        beyond = constant(body.dtype, neutral(node.kind, body.dtype))
        body = Guarded(body.dtype, inside, body, beyond)
    size = (to_index(pieces), *(a.size for a in node.axes))
    strides = tuple(product(size[k + 1 :]) for k in range(len(size)))
    part = Buffer(name, node.out.dtype, size, strides, node.out.device)
    where = (to_index(piece), *(to_index(a) for a in node.axes))
    reduced = tuple(within if a == cut else a for a in node.reduced)
    first = replace(
        node, out=part, axes=(piece, *node.axes), reduced=reduced, index=where, body=body
    )
    again = Axis(f"{cut.name}_again", to_index(pieces))
    load = Load(part.dtype, name, (to_index(again), *where[1:]))
    return first, replace(node, reduced=(again,), body=load)


def _row_length(
    node: Node, summed: Mapping[str, Index], buffers: Mapping[str, Buffer]
) -> Index | None:
    """The length of the rows that the elements of a value are computed from; None if unknown."""
    if isinstance(node, Reduction):
        return product(a.size for a in node.reduced)
    if not isinstance(node, Pointwise):
        return None
    read = {load.buffer for load in loads(node.body) if load.buffer in summed}
    lengths = {summed[name] for name in read if buffers[name].numel == node.out.numel}
    return lengths.pop() if len(lengths) == 1 else None


def _rows_of_operands(node: Reduction, summed: Mapping[str, Index]) -> tuple[Axis, ...]:
    """Return the axes of the rows that operands of a reduction to one result are computed from.

    Empty if there are none, or if they are computed from different rows.
    """
    if node.axes:
        return ()
    found: set[tuple[Axis, ...]] = set()
    for load in loads(node.body):
        if load.buffer not in summed:
            continue
        used = frozenset[Axis]().union(*(index.axes for index in load.index))
        inner = product(a.size for a in node.reduced if a not in used)
        rows = tuple(a for a in node.reduced if a in used)
        found.add(rows if inner != 1 and inner == summed[load.buffer] else ())
    return found.pop() if len(found) == 1 else ()


def _split_by_rows(
    node: Reduction, rows: tuple[Axis, ...], name: str
) -> tuple[Reduction, Reduction]:
    """Return the reduction of each row, and the reduction of their results."""
    size = tuple(a.size for a in rows)
    part = Buffer(name, node.out.dtype, size, contiguous_strides(size), node.out.device)
    where = tuple(to_index(a) for a in rows)
    inner = tuple(a for a in node.reduced if a not in rows)
    first = replace(node, out=part, axes=rows, reduced=inner, index=where)
    load = Load(part.dtype, name, where)
    return first, replace(node, reduced=rows, body=load)
