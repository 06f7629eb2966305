"""fuse.split_scan: split a scan of few long rows among the programs of a GPU.

A row is cut into pieces. Each piece is scanned alone, the totals of the pieces are scanned, and
every element is combined with the total of the pieces before its own. This reads and writes a row
twice, but many programs share the work. It is legal for sums and products, whose elements can be
combined in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Axis, Index, to_index
from tcdebug.compiler.ir.build import call, index_value
from tcdebug.compiler.ir.expr import Guarded, Load
from tcdebug.compiler.ir.graph import Buffer, Graph, Node, Pointwise, Scan, contiguous_strides
from tcdebug.compiler.schedule.splitting.pieces import FEWEST, count_of_pieces, reads_across
from tcdebug.compiler.schedule.splitting.split_reduction import (
    DEVICES,
    cut_axis,
    fresh,
    neutral_of,
)

UNIT = "fuse.split_scan"
COMBINE = {"cumsum": "add", "cumprod": "mul"}
"""Scan -> the operation that combines the total of earlier pieces with a state of a piece."""


def split_scans(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with scans split that would give a GPU too few programs."""
    nodes: list[Node] = []
    buffers = graph.buffers()
    taken = set(buffers)
    for node in graph.nodes:
        count = _pieces(node, buffers) if isinstance(node, Scan) else 0
        if not isinstance(node, Scan) or not count or not gate.allows(UNIT, node.name):
            nodes.append(node)
            continue
        names = (fresh(f"{node.name}_{part}", taken) for part in ("pieces", "before"))
        nodes += _split(node, count, *names)
    return replace(graph, nodes=tuple(nodes))


def _pieces(node: Scan, buffers: Mapping[str, Buffer]) -> int:
    """Return the number of pieces of each row; 0 leaves the scan as it is."""
    if node.out.device.type not in DEVICES or node.kind not in COMBINE or len(node.reduced) > 1:
        return 0
    count = count_of_pieces(node, across=reads_across(node, buffers))
    return count if count >= FEWEST else 0


def _split(
    node: Scan, count: int, of_pieces: str, before_them: str
) -> tuple[Scan, Scan, Pointwise]:
    (row,) = node.reduced
    body, piece, within = cut_axis(node, row, count)
    length, start = within.size, neutral_of(node)

    def at(number: Index, step: Index) -> tuple[Index, ...]:
        """The index of a state in the buffer of all pieces."""
        split = ((number, step) if where == to_index(row) else (where,) for where in node.index)
        return tuple(index for part in split for index in part)

    states = _buffer(node, of_pieces, at(to_index(piece), to_index(within)), (piece, within))
    pieces = Scan(
        states, (piece, *node.axes), (within,),
        at(to_index(piece), to_index(within)), node.kind, body, node.origin,
    )  # fmt: skip
    again = Axis(f"{row.name}_again", to_index(count))
    where = (*(to_index(a) for a in node.axes), to_index(again))
    totals = _buffer(node, before_them, where, (again,))
    total = Load(states.dtype, states.name, at(to_index(again) - 1, length - 1))
    later = call("ge", index_value(to_index(again)), index_value(ONE))
    before = Scan(
        totals, node.axes, (again,), where, node.kind,
        Guarded(total.dtype, later, total, start), node.origin,
    )  # fmt: skip
    number, step = to_index(row) // length, to_index(row) % length
    state = Load(states.dtype, states.name, at(number, step))
    earlier = Load(totals.dtype, totals.name, (*where[:-1], number))
    combined = call(COMBINE[node.kind], earlier, state)
    axes = {to_index(a): a for a in (*node.axes, row)}
    in_order = tuple(axes[index] for index in node.index if index != ZERO)
    final = Pointwise(node.out, in_order, node.index, combined, node.origin)
    return pieces, before, final


def _buffer(node: Scan, name: str, index: tuple[Index, ...], axes: tuple[Axis, ...]) -> Buffer:
    """Return a buffer with a dimension for each index: an axis of the node, one of `axes`, or 0."""
    sizes = {to_index(a): a.size for a in (*node.axes, *axes)}
    size = tuple(ONE if where == ZERO else sizes[where] for where in index)
    return Buffer(name, node.out.dtype, size, contiguous_strides(size), node.out.device)
