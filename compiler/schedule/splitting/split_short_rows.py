"""fuse.split_short_rows: reduce outer axes first, then the short innermost one.

A reduction over the first and the last axis of an image, or over the batch and a few neighbours,
visits short rows that are far apart. On a CPU, vectors along such a row are not full, and each row
ends with a sum of lanes. So the elements at each place of a row are reduced first, with vectors
along the memory that rows and their results share, and then the few places. This is legal for
reductions whose elements can be combined in any order.

An operand that differs between results, but not along a row, such as the maximum of a `logsumexp`,
would end the vectors with each row. It is first repeated in memory for each place of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, stride
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, Load, indices, indirect_atoms, loads, walk
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Reduction,
    loaded_addresses,
)
from tcdebug.compiler.ir.operations import FLOATS
from tcdebug.compiler.schedule.splitting.pieces import Pieces
from tcdebug.compiler.schedule.splitting.split_reduction import KINDS, fresh, split

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
VECTOR = 16
"""The lanes of a vector of floats. Rows that fill whole ones need no repeated operands."""
ROWS_TO_REPEAT = 8
"""The fewest rows for each result for which operands are repeated, as many as elements of a row."""


def split_short_rows(graph: Graph, gate: Gate) -> tuple[Graph, frozenset[str]]:
    """Return the graph with reductions of short rows that are far apart in two steps.

    Also returns the names of operands that are repeated in memory for their readers.
    """
    nodes: list[Node] = []
    in_memory: set[str] = set()
    buffers = graph.buffers()
    taken = {node.name for node in graph.nodes}
    for node in graph.nodes:
        row = short_row(node, buffers) if isinstance(node, Reduction) else ()
        if isinstance(node, Reduction) and row and gate.allows(UNIT, node.name):
            if _ends_vectors(node, row, buffers) and gate.allows(UNIT, f"operands of {node.name}"):
                repeated = _Repeated(node, row, taken)
                node = repeated.reduction()
                nodes += repeated.operands.values()
                in_memory |= {operand.name for operand in repeated.operands.values()}
            parts = split(node, Pieces(row, inside=True), fresh(f"{node.name}_places", taken))
            nodes += (parts.pieces, parts.combined)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes)), frozenset(in_memory)


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
    shared = any(_is_shared(node, row, a) for a in found)
    if length < FEWEST_LANES and shared and not _ends_vectors(node, row, buffers):
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


def _ends_vectors(node: Reduction, row: Sequence[Axis], buffers: Mapping[str, Buffer]) -> bool:
    """Return whether operands that differ between results, but not along rows, are worth repeating.

    Every value that depends on the results must then be such an operand, or lie along the rows.
    """
    sizes = [a.size.constant for a in (*node.axes, *node.reduced)]
    if not row or None in sizes or estimate(product(a.size for a in row)) % VECTOR == 0:
        return False
    rows = product(a.size for a in node.reduced if a not in row).constant
    if rows is None or rows < ROWS_TO_REPEAT:
        return False
    for expr in walk(node.body):
        if isinstance(expr, Guarded) or any(map(indirect_atoms, indices(expr))):
            return False
    return any(_is_shared(node, row, a) for a in loaded_addresses(node, buffers))


class _Repeated:
    """The operands of a reduction that differ between results only, repeated along its rows.

    `operands` are the nodes that store them, by the keys of their bodies. Each has one axis over
    all places, so that no kernel that reads them at a place computes them.
    """

    def __init__(self, node: Reduction, row: Sequence[Axis], taken: set[str]) -> None:
        self.operands: dict[str, Pointwise] = {}
        self._node = node
        self._places = (*node.axes, *row)
        self._taken = taken

    def reduction(self) -> Reduction:
        """Return the reduction that reads the repeated operands."""
        return replace(self._node, body=self._changed(self._node.body))

    def _changed(self, expr: Expr) -> Expr:
        if self._is_of_result(expr):
            return self._load(expr)
        if not isinstance(expr, Call):
            return expr
        return expr.with_operands(tuple(map(self._changed, expr.operands)))

    def _is_of_result(self, expr: Expr) -> bool:
        """Return whether an expression reads memory, and depends on results only."""
        if expr.dtype not in FLOATS or not any(load.index for load in loads(expr)):
            return False
        return bool(expr.axes) and expr.axes <= frozenset(self._node.axes)

    def _load(self, expr: Expr) -> Expr:
        if expr.key not in self.operands:
            name = fresh(f"{self._node.name}_operand", self._taken)
            self.operands[expr.key] = self._stored(expr, name)
        place = to_index(0)
        for axis in self._places:
            place = place * axis.size + to_index(axis)
        return Load(expr.dtype, self.operands[expr.key].name, (place,))

    def _stored(self, expr: Expr, name: str) -> Pointwise:
        size = (product(a.size for a in self._places),)
        out = Buffer.contiguous(name, expr.dtype, size, self._node.out.device)
        axis = Axis("i0", size[0])
        values: dict[Atom, Index] = {}
        left = to_index(axis)
        for place in reversed(self._places):
            values[place] = left % place.size
            left = left // place.size
        body = expr.substitute(values)
        return Pointwise(out, (axis,), (to_index(axis),), body, self._node.origin)
