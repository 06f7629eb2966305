"""Chooses how the elements of a reduction are divided among the programs of a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest, stride
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import Expr, loads
from tcdebug.compiler.ir.graph import Buffer, Reduction, Scan, loaded_addresses

PROGRAMS = 132 * 8
"""The number of programs of 8 warps that keeps a large GPU busy."""
PIECE = 4096
"""The fewest elements that a program should combine."""
CACHE, CACHED = 1 << 25, 1 << 14
"""Of more bytes, strided pieces of a variance have at most so many, to be held in registers."""
FEWEST = 4
"""Fewer pieces than this are not worth a second step."""
FEWEST_ACROSS = 8
"""The same if the inner axes are strided. Few programs then have more warps instead."""
FEWEST_CHAINED = 2
"""The same for a maximum and exponentials, whose loops wait for each element."""
LONGEST = 1 << 10
"""The longest strided piece that the registers of a program hold."""
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


@dataclass(frozen=True)
class DividedReduction:
    """A reduction in two steps: the result of each piece, and the combination of these."""

    pieces: Reduction
    combined: Reduction
    count: Expr
    """The number of elements of a piece, over the axes of `pieces`."""
    guarded: bool
    """Whether some pieces have fewer elements, so that the body of `pieces` has a guard."""


def pieces(
    node: Reduction,
    buffers: Mapping[str, Buffer],
    *,
    squares: bool = False,
    exponentials: bool = False,
) -> Pieces | None:
    """Return how to divide the elements of a reduction; None if it stays as it is.

    If `squares` of the distances from its mean follow, pieces of columns are short enough for
    registers. If `exponentials` of the distances from a maximum follow, few pieces pay already.
    """
    across = reads_across(node, buffers)
    wanted = count_of_pieces(node, across=across)
    fewest = wanted // 2
    if squares and across and (held := _held_pieces(node)) > wanted:
        wanted = fewest = held
    worthwhile = FEWEST_CHAINED if exponentials else FEWEST_ACROSS
    if wanted < (worthwhile if across else FEWEST):
        return None
    if not across:
        return along(node, by_stride(node, buffers)[::-1], wanted)
    found = _one_axis(node, wanted, fewest)
    if len(node.reduced) > 1 and (found is None or found.count * 2 < wanted):
        return along(node, by_stride(node, buffers), wanted)
    return found


def count_of_pieces(node: Reduction | Scan, *, across: bool) -> int:
    """Return how many pieces of each row keep a GPU busy; 0 if rows have few elements.

    `across` is what `reads_across` returns.
    """
    rows, inner = estimate(product(a.size for a in node.axes)), _length(node)
    if rows == 0 or inner == 0 or (rows >= PROGRAMS * 8 and not across):
        return 0
    together = _together(node, across=across)
    programs = max(1, rows // together)
    busy = PROGRAMS * 2 if across else PROGRAMS  # programs of 4 warps if across
    return min(busy // programs, inner * together // PIECE)


def _held_pieces(node: Reduction) -> int:
    """Return how many pieces of each column the registers of a program hold; 0 if a cache does.

    The length of a piece is at most a power of two, as that of a tile is.
    """
    inner, size = _length(node), itemsize(_source(node))
    if _bytes(node) <= CACHE or inner <= LONGEST:
        return 0
    longest = CACHED // (_together(node, across=True) * size)
    return -(-inner // min(LONGEST, 1 << (longest.bit_length() - 1)))


def _length(node: Reduction | Scan) -> int:
    return estimate(product(a.size for a in node.reduced))


def _bytes(node: Reduction) -> int:
    return estimate(product(a.size for a in (*node.axes, *node.reduced))) * itemsize(_source(node))


def _together(node: Reduction | Scan, *, across: bool) -> int:
    """Return how many neighbouring results one program computes."""
    rows = estimate(product(a.size for a in node.axes))
    return min(COLUMN_BYTES // itemsize(_source(node)), rows) if across else 1


def _one_axis(node: Reduction, wanted: int, fewest: int) -> Pieces | None:
    """Divide one axis, without a remainder if that is possible with at least so many pieces.

    If the elements of all results at one place are few neighbours in memory, pieces take such
    places in turns, so that programs of several pieces read neighbours, too.
    """
    row_bytes = estimate(product(a.size for a in node.axes)) * itemsize(_source(node))
    turns = row_bytes < COLUMN_BYTES
    exact = [
        (abs(n - wanted), -estimate(a.size), n, a)
        for a in node.reduced
        for n in _divisors(a.size.constant, wanted, fewest)
    ]
    if exact:
        *_, count, cut = min(exact, key=lambda found: found[:3])
        return Pieces((), cut, count, turns)
    longest = max(node.reduced, key=lambda a: estimate(a.size))
    count = min(wanted, estimate(longest.size) // 2)
    return Pieces((), longest, count, turns) if count >= 2 else None


def along(node: Reduction, axes: Sequence[Axis], wanted: int) -> Pieces:
    """Divide axes, the first ones first, until there are as many pieces as wanted."""
    whole: list[Axis] = []
    for axis in axes:
        size = estimate(axis.size)
        if size > wanted:
            counts = _divisors(axis.size.constant, wanted, wanted // 2)
            count = min(counts, key=lambda n: abs(n - wanted), default=min(wanted, size // 2))
            if count < size:
                return Pieces(tuple(whole), axis, count)
        whole.append(axis)
        wanted //= size
        if wanted < 2:
            break
    return Pieces(tuple(whole))


def by_stride(node: Reduction, buffers: Mapping[str, Buffer]) -> list[Axis]:
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


def _divisors(size: int | None, wanted: int, fewest: int) -> list[int]:
    """Return the divisors of a size from the fewest to twice the wanted number of pieces."""
    if size is None:
        return []
    return [n for n in range(max(2, fewest), wanted * 2 + 1) if size % n == 0]
