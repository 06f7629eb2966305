"""fuse.split_short_rows: reduce outer axes first, then the short innermost one.

A reduction over the first and the last axis of an image, or over the batch and a few neighbours,
visits short rows that are far apart. On a CPU, vectors along such a row are not full, and each row
ends with a sum of lanes. So the elements at each place of a row are reduced first, with vectors
along the memory that rows and their results share, and then the few places. This is legal for
reductions whose elements can be combined in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, stride
from tcdebug.compiler.ir.graph import Buffer, Graph, Node, Reduction, loaded_addresses
from tcdebug.compiler.schedule.splitting.split_reduction import KINDS, Pieces, fresh, split

UNIT = "fuse.split_short_rows"
DEVICES = ("cpu",)
LONGEST_ROW = 64
"""Longer rows fill vectors."""
FEWEST_ROWS = 4
"""With fewer rows for each result, the results for places are too large a part of the input."""
FEWEST_LANES = 16
"""The shortest row whose places fill lanes by themselves, if lanes cannot go on in the next row."""
FEWEST_PLACES = 64
"""Fewer results for places do not fill the lanes of a loop over columns."""
FEWEST_RESULTS = 8
"""Fewer do not fill a vector when places are combined."""


def split_short_rows(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with reductions of short rows that are far apart in two steps."""
    nodes: list[Node] = []
    buffers = graph.buffers()
    taken = {node.name for node in graph.nodes}
    for node in graph.nodes:
        if (
            isinstance(node, Reduction)
            and (row := short_row(node, buffers))
            and gate.allows(UNIT, node.name)
        ):
            parts = split(node, Pieces(row, inside=True), fresh(f"{node.name}_places", taken))
            nodes += (parts.pieces, parts.combined)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def short_row(node: Reduction, buffers: Mapping[str, Buffer]) -> tuple[Axis, ...]:
    """Return the innermost reduced axes if they are short, and results lie between them and others.

    Empty if the reduction stays as it is.
    """
    if node.out.device.type not in DEVICES or node.kind not in KINDS or not node.axes:
        return ()
    found = loaded_addresses(node, buffers)
    short = {row for a in found if (row := _row(node, a)) is not None}
    row = short.pop() if len(short) == 1 else ()
    length = estimate(product(a.size for a in row))
    if length < FEWEST_LANES and any(_is_shared(node, row, a) for a in found):
        return ()
    if not 1 < length <= LONGEST_ROW:
        return ()
    rows = estimate(product(a.size for a in node.reduced)) // length
    results = estimate(product(a.size for a in node.axes))
    enough = results >= FEWEST_RESULTS and results * length >= FEWEST_PLACES
    return row if enough and rows >= FEWEST_ROWS else ()


def _is_shared(node: Reduction, row: Sequence[Axis], address: Index) -> bool:
    """Return whether an operand differs between results, but not along the row."""
    return bool(address.axes & frozenset(node.axes)) and not address.axes & frozenset(row)


def _row(node: Reduction, address: Index) -> tuple[Axis, ...] | None:
    """Return the reduced axes that are nearer in memory than those of the results.

    None for an operand that is the same along an axis.
    """
    strides = {a: stride(address, a) for a in (*node.axes, *node.reduced)}
    if not all(strides.values()):
        return None
    nearest = min(strides[a] for a in node.axes)
    return tuple(a for a in node.reduced if strides[a] < nearest)
