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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest, stride
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import Expr, Guarded, Load, loads
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Reduction,
    Scan,
    contiguous_strides,
    loaded_addresses,
)
from tcdebug.compiler.ir.operations import SCANS, neutral
from tcdebug.compiler.schedule.splitting.split_variance import (
    DividedSum,
    split_distances,
    sum_of_the_mean,
)

UNIT = "fuse.split_reduction"
DEVICES = ("cuda",)
KINDS = ("sum", "prod", "max", "min")
PROGRAMS = 132 * 8
"""The number of programs of 8 warps that keeps a large GPU busy."""
PIECE = 4096
"""The fewest elements that a program should combine."""
CACHE, CACHED = 1 << 25, 1 << 14
"""Of more bytes that are read twice, pieces have at most so many, to be in a cache once again."""
MOST = 1 << 12
"""More pieces of each row take longer to combine than to read twice from memory."""
FEWEST = 4
"""Fewer pieces than this are not worth a second step."""
FEWEST_ACROSS = 8
"""The same if the inner axes are strided. Few programs then have more warps instead."""
MANY, FEW = 512, 64
"""From so many pieces each, several variances, but at most so many, are combined in two steps."""
COLUMN_BYTES = 128
"""Bytes of neighbouring results that one program computes if the inner axes are strided."""


@dataclass(frozen=True)
class Pieces:
    """How the elements of a reduction are divided.

    Each point of the axes in `whole` is in another piece, and `cut` is divided in `count`. The
    pieces take its elements in `turns`, or neighbours. The partial results of a piece are
    neighbours in memory, or those of all pieces for a result are, if pieces are `inside`.
    """

    whole: tuple[Axis, ...]
    cut: Axis | None = None
    count: int = 1
    turns: bool = False
    inside: bool = False


def split_reductions(graph: Graph, gate: Gate) -> tuple[Graph, dict[str, str]]:
    """Return the graph with reductions split that would give a GPU too few programs.

    Also returns the reductions of pieces, and those that combine their results: name -> name.
    """
    nodes: list[Node] = []
    buffers = graph.buffers()
    summed: dict[str, Rows] = {}
    divided: dict[str, DividedSum] = {}
    parts: dict[str, str] = {}
    taken = {node.name for node in graph.nodes}
    means = _sums_of_means(graph)
    read_twice = frozenset(means.values())
    left: list[Node] = [*reversed(graph.nodes)]
    while left:
        node = left.pop()
        reduction = node if isinstance(node, Reduction) else None
        total = divided.get(means.get(node.name, ""))
        twice = node.name in read_twice
        found = pieces(reduction, buffers, twice=twice) if reduction else None
        if (found is None and total is None) or not gate.allows(UNIT, node.name):
            nodes.append(node)
            if (row := _rows(node, summed, buffers)) is not None:
                summed[node.name] = row
            continue
        assert isinstance(node, Reduction)
        name = fresh(f"{node.name}_piece", taken)
        parts[name] = node.name
        if total is not None:
            first, last = split_distances(node, total, name)
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
            nodes += (halves.pieces, halves.combined)
    return replace(graph, nodes=tuple(nodes)), parts


def _sums_of_means(graph: Graph) -> dict[str, str]:
    """Sum of squared distances -> the sum that their mean is of."""
    sums = {node.name: node for node in graph.nodes if isinstance(node, Reduction)}
    found = {name: sum_of_the_mean(node, sums) for name, node in sums.items()}
    return {name: total.name for name, total in found.items() if total is not None}


def fresh(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def pieces(node: Reduction, buffers: Mapping[str, Buffer], *, twice: bool = False) -> Pieces | None:
    """Return how to divide the elements of a reduction; None if it stays as it is.

    If they are read `twice`, for a mean and a variance, pieces are small enough for a cache.
    """
    if node.out.device.type not in DEVICES or node.kind not in KINDS:
        return None
    across = reads_across(node, buffers)
    wanted = count_of_pieces(node, across=across)
    if wanted < (FEWEST_ACROSS if across else FEWEST):
        return None
    if twice and (cached := _cached_pieces(node, across=across)) <= MOST:
        wanted = max(wanted, cached)
    if not across:
        return _along(node, _by_stride(node, buffers)[::-1], wanted)
    found = _one_axis(node, wanted)
    if len(node.reduced) > 1 and (found is None or found.count * 2 < wanted):
        return _along(node, _by_stride(node, buffers), wanted)
    return found


def count_of_pieces(node: Reduction | Scan, *, across: bool) -> int:
    """Return how many pieces of each row keep a GPU busy; 0 if rows have few elements.

    `across` is what `reads_across` returns.
    """
    rows = estimate(product(a.size for a in node.axes))
    inner = estimate(product(a.size for a in node.reduced))
    if rows == 0 or inner == 0 or (rows >= PROGRAMS * 8 and not across):
        return 0
    together = _together(node, across=across)
    programs = max(1, rows // together)
    busy = PROGRAMS * 2 if across else PROGRAMS  # programs of 4 warps if across
    return min(busy // programs, inner * together // PIECE)


def _cached_pieces(node: Reduction, *, across: bool) -> int:
    """Return how many pieces of each row fit a cache; 0 if all elements do."""
    size = itemsize(_source(node))
    if estimate(product(a.size for a in (*node.axes, *node.reduced))) * size <= CACHE:
        return 0
    inner = estimate(product(a.size for a in node.reduced))
    return inner * _together(node, across=across) * size // CACHED


def _together(node: Reduction | Scan, *, across: bool) -> int:
    """Return how many neighbouring results one program computes."""
    rows = estimate(product(a.size for a in node.axes))
    return min(COLUMN_BYTES // itemsize(_source(node)), rows) if across else 1


def _one_axis(node: Reduction, wanted: int) -> Pieces | None:
    """Divide one axis, without a remainder if possible.

    If the elements of all results at one place are few neighbours in memory, pieces take such
    places in turns, so that programs of several pieces read neighbours, too.
    """
    row_bytes = estimate(product(a.size for a in node.axes)) * itemsize(_source(node))
    turns = row_bytes < COLUMN_BYTES
    exact = [
        (abs(n - wanted), -estimate(a.size), n, a)
        for a in node.reduced
        for n in _divisors(a.size.constant, wanted)
    ]
    if exact:
        *_, count, cut = min(exact, key=lambda found: found[:3])
        return Pieces((), cut, count, turns)
    longest = max(node.reduced, key=lambda a: estimate(a.size))
    count = min(wanted, estimate(longest.size) // 2)
    return Pieces((), longest, count, turns) if count >= 2 else None


def _along(node: Reduction, axes: Sequence[Axis], wanted: int) -> Pieces:
    """Divide axes, the first ones first, until there are as many pieces as wanted."""
    whole: list[Axis] = []
    for axis in axes:
        size = estimate(axis.size)
        if size > wanted:
            counts = _divisors(axis.size.constant, wanted)
            count = min(counts, key=lambda n: abs(n - wanted), default=min(wanted, size // 2))
            if count < size:
                return Pieces(tuple(whole), axis, count)
        whole.append(axis)
        wanted //= size
        if wanted < 2:
            break
    return Pieces(tuple(whole))


def _by_stride(node: Reduction, buffers: Mapping[str, Buffer]) -> list[Axis]:
    """Return the reduced axes, the nearest in memory first."""
    found = loaded_addresses(node, buffers)
    return sorted(node.reduced, key=lambda a: sum(stride(address, a) for address in found))


def _source(node: Reduction | Scan) -> torch.dtype:
    """Return the widest dtype that a reduction or scan reads."""
    read = [load.dtype for load in loads(node.body) if load.index]
    return max(read, key=itemsize, default=node.body.dtype)


def reads_across(node: Reduction | Scan, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether most elements are closest in memory to those of neighbouring results.

    Elements that several results share do not count, unless all are shared.
    """
    axes, results = (*node.axes, *node.reduced), frozenset(node.axes)
    found = loaded_addresses(node, buffers)
    own = [address for address in found if address.axes & results]
    along = [nearest(address, axes) for address in own or found]
    return sum(a in node.axes for a in along) > sum(a in node.reduced for a in along)


def _divisors(size: int | None, wanted: int) -> list[int]:
    """Return the divisors of a size from half to twice the wanted number of pieces."""
    if size is None:
        return []
    return [n for n in range(max(2, wanted // 2), wanted * 2 + 1) if size % n == 0]


def _again(node: Reduction, buffers: Mapping[str, Buffer], taken: set[str]) -> tuple[Node, ...]:
    """Divide a reduction that combines the results of many pieces, if it has few results.

    One program would take longer to combine the variances of pieces than all programs to read them.
    """
    inner, rows = (estimate(product(a.size for a in axes)) for axes in (node.reduced, node.axes))
    if inner < MANY or not 1 < rows <= FEW:
        return (node,)
    by = _along(node, _by_stride(node, buffers)[::-1], math.isqrt(inner))
    halves = split(node, by, fresh(f"{node.name}_piece", taken))
    return halves.pieces, halves.combined


def split(node: Reduction, by: Pieces, name: str) -> DividedSum:
    """Return the reduction of each piece, and the reduction of their results."""
    body, inner = node.body, tuple(a for a in node.reduced if a not in by.whole)
    count, guarded = index_value(product(a.size for a in inner)), False
    numbers, again = by.whole, by.whole
    if by.cut is not None:
        body, piece, within = cut_axis(node, by.cut, by.count, turns=by.turns)
        guarded = not _is_exact(by.cut, by.count)
        others = product(a.size for a in inner if a != by.cut)
        length = _length(by, piece, within) if guarded else index_value(within.size)
        count = length if others == 1 else call("mul", length, index_value(others))
        inner = tuple(within if a == by.cut else a for a in inner)
        numbers, again = (*by.whole, piece), (*by.whole, Axis(f"{by.cut.name}_again", piece.size))
    axes = (*node.axes, *numbers) if by.inside else (*numbers, *node.axes)
    where = tuple(to_index(a) for a in axes)
    size = tuple(a.size for a in axes)
    part = Buffer(name, node.out.dtype, size, contiguous_strides(size), node.out.device)
    read = (*node.axes, *again) if by.inside else (*again, *node.axes)
    load = Load(part.dtype, name, tuple(map(to_index, read)))
    first = replace(node, out=part, axes=axes, reduced=inner, index=where, body=body)
    last = replace(node, reduced=again, body=load)
    return DividedSum(first, last, count, guarded)


def _length(by: Pieces, piece: Axis, within: Axis) -> Expr:
    """Return the number of elements of a piece along the axis that is cut."""
    assert by.cut is not None
    size, number = by.cut.size, to_index(piece)
    if by.turns:
        return index_value((size - number + (by.count - 1)) // to_index(by.count))
    left = call("maximum", index_value(size - number * within.size), constant(torch.int64, 0))
    return call("minimum", left, index_value(within.size))


def _is_exact(axis: Axis, count: int) -> bool:
    return axis.size.constant is not None and axis.size.constant % count == 0


def cut_axis(
    node: Reduction | Scan, axis: Axis, count: int, *, turns: bool = False
) -> tuple[Expr, Axis, Axis]:
    """Divide an axis: return the body, the axis of the pieces, and the axis within a piece.

    Where the last piece ends beyond the axis, the body is the neutral element.
    """
    piece = Axis(f"{axis.name}_piece", to_index(count))
    within = Axis(f"{axis.name}_within", (axis.size + (count - 1)) // to_index(count))
    place = to_index(piece) * within.size + to_index(within)
    if turns:
        place = to_index(within) * to_index(count) + to_index(piece)
    values: dict[Atom, Index] = {axis: place}
    body = node.body.substitute(values)
    if not _is_exact(axis, count):
        inside = call("lt", index_value(place), index_value(axis.size))
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
    part = Buffer(name, node.out.dtype, size, contiguous_strides(size), node.out.device)
    where = tuple(to_index(a) for a in rows)
    inner = tuple(a for a in node.reduced if a not in rows)
    first = replace(node, out=part, axes=rows, reduced=inner, index=where)
    load = Load(part.dtype, name, where)
    return first, replace(node, reduced=rows, body=load)
