"""fuse.split_scan: split a scan of few long rows among the programs of a GPU.

A row is cut into pieces. The elements of each piece are combined, and these totals are scanned.
Then each piece is scanned alone, its first element combined with the total of the pieces before it.
This reads a row twice, but many programs share the work. It is legal for sums and products, whose
elements can be combined in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Atom, Axis, Index, to_index
from tcdebug.compiler.ir.build import call, cast, index_value
from tcdebug.compiler.ir.expr import Guarded, Load
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Reduction,
    Scan,
    output_refs,
    reads,
)
from tcdebug.compiler.ir.operations import SCANS
from tcdebug.compiler.schedule.splitting.pieces import (
    FEWEST,
    FEWEST_ACROSS,
    count_of_pieces,
    reads_across,
)
from tcdebug.compiler.schedule.splitting.split_reduction import (
    DEVICES,
    cut_axis,
    fresh,
    neutral_of,
)

UNIT = "fuse.split_scan"
COMBINE = {"cumsum": "add", "cumprod": "mul"}
"""Scan -> the operation that combines the total of earlier pieces with an element."""
VECTOR = 16
"""The length of a piece is a multiple of this, so that pieces begin where vectors do."""


def split_scans(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with scans split that would give a GPU too few programs."""
    nodes: list[Node] = []
    buffers = graph.buffers()
    taken = set(buffers)
    rounded: set[str] = set()
    for node in graph.nodes:
        if node.name in rounded:
            continue
        count, across = _pieces(node, buffers) if isinstance(node, Scan) else (0, False)
        if not isinstance(node, Scan) or not count or not gate.allows(UNIT, node.name):
            nodes.append(node)
            continue
        totals, before = (fresh(f"{node.name}_{part}", taken) for part in ("pieces", "before"))
        if (conversion := _conversion(node, graph)) is not None:
            rounded.add(conversion.name)
            node = replace(node, out=conversion.out)
        nodes += _split(node, count, totals, before, across=across)
    return replace(graph, nodes=tuple(nodes))


def _conversion(scan: Scan, graph: Graph) -> Pointwise | None:
    """Return what only converts a scan that nothing else reads; None if there is no such node."""
    reader, *others = [n for n in graph.nodes if scan.name in reads(n)] or [scan]
    if others or not isinstance(reader, Pointwise) or scan.name in output_refs(graph):
        return None
    element = Load(scan.out.dtype, scan.name, reader.index)
    converts = reader.body.key == cast(element, reader.out.dtype).key and not reader.into
    return reader if converts and reader.out.size == scan.out.size else None


def _pieces(node: Scan, buffers: Mapping[str, Buffer]) -> tuple[int, bool]:
    """Return the number of pieces of each row, and whether rows lie across memory.

    0 leaves the scan as it is.
    """
    if node.out.device.type not in DEVICES or node.kind not in COMBINE or len(node.reduced) > 1:
        return 0, False
    across = reads_across(node, buffers)
    count = count_of_pieces(node, across=across)
    return (count if count >= (FEWEST_ACROSS if across else FEWEST) else 0), across


def _split(
    node: Scan, count: int, of_pieces: str, before_them: str, *, across: bool
) -> tuple[Reduction, Scan, Scan]:
    """Return the totals of pieces, what is before each piece, and the scan of each piece.

    The totals of a piece are neighbours in memory, or those of a row are, as the elements are.
    """
    (row,) = node.reduced
    body, piece, within = cut_axis(node, row, count, multiple=VECTOR)
    dtype, again = body.dtype, Axis(f"{row.name}_again", piece.size)

    def beside(part: Axis) -> tuple[Axis, ...]:
        return (part, *node.axes) if across else (*node.axes, part)

    axes = beside(piece)
    where, along = tuple(map(to_index, axes)), tuple(map(to_index, beside(again)))
    size, device = [a.size for a in axes], node.out.device
    totals, sums = (
        Buffer.contiguous(name, dtype, size, device) for name in (of_pieces, before_them)
    )
    total = Reduction(totals, axes, (within,), where, SCANS[node.kind], body, node.origin)

    previous = tuple(i - 1 if i == to_index(again) else i for i in along)
    later = call("ge", index_value(to_index(again)), index_value(ONE))
    shifted = Guarded(dtype, later, Load(dtype, of_pieces, previous), neutral_of(node))
    before = Scan(sums, node.axes, (again,), along, node.kind, shifted, node.origin)

    first = call("eq", index_value(to_index(within)), index_value(ZERO))
    carried = call(COMBINE[node.kind], Load(dtype, before_them, where), body)
    places: dict[Atom, Index] = {row: to_index(piece) * within.size + to_index(within)}
    index = tuple(i.substitute(places) for i in node.index)
    carrying = call("where", first, carried, body)
    last = replace(node, axes=axes, reduced=(within,), index=index, body=carrying)
    return total, before, last
