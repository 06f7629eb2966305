"""Chooses the tiles of kernels that accumulate: rows in registers or loops, columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.codegen.triton.one_sweep import in_one_sweep
from tcdebug.compiler.codegen.triton.tiles import (
    FULL,
    MULTIPROCESSORS,
    THREAD_BYTES,
    WARP,
    Tile,
    TileDimension,
    power_of_two,
    widest,
)
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.size_estimate import (
    begin_at_sectors,
    estimate,
    nearest,
    with_most_points,
)
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.operations import gives_place

ROW = 1 << 15
"""The longest row, in elements, that the registers of one program can hold."""
COLUMN_TILE = 2048
"""Elements of a tile that reduces over a strided axis, for 4 warps; half as many of half types,
unless it only finds a sum of exponentials: that of 524,288 rows of 256 numbers 89 instead of 99 us.

If rows of float16 begin at odd addresses, twice as many take twice the time: a sum over 704 rows of
90,001 elements 77 us instead of 38.
"""
LOOPED, WASTE = 1 << 12, 1.5
"""From this length, a loop reads a row as fast as a tile that is longer than it by this factor."""
LOOPED_COLUMN, WASTE_OF_COLUMNS = 1 << 9, 1.4
"""The same for the variance of a column."""
HELD_COLUMN = 1 << 10
"""The longest column to hold in registers, in elements, if it is read again."""
COLUMN_BYTES, SCANNED_COLUMNS = 128, 64
"""Bytes of a row of a tile that reduces over a strided axis, and the fewest elements if it scans.

A cumulative sum of 3904 rows of 31,877 floats took 645 us in tiles of 32 x 64, and 329 of 64 x 32.
"""
TRANSPOSED_BYTES, TRANSPOSED_BY_THREAD, FEWEST_TRANSPOSED = 1 << 16, 32, 8
"""Bytes of a tile that Triton transposes, elements of a thread, and the shortest side of the tile.

With sides of 8 and 16, a cumulative sum over 63 of 7808 x 63 x 256 floats took 790 us, with 16 and
16 452. One over 127 of 3904 x 127 x 256 took 818 us with 8 and 16, and 950 in tiles of 32 rows.
"""
HELD_BYTES = 1 << 13
"""The most bytes of the rows of a softmax to hold in registers; longer rows are read again."""
WARP_ROWS, WARP_COLUMNS = 1024, 2048
"""Elements of whole rows, or of whole columns, for each warp of a program."""
SHORT = 64
"""The longest row, in elements, for which a warp has as many elements as in a pointwise kernel."""
HELD_ROW_BYTES = 48
"""The most bytes of the rows that a kernel reads, per element, for a warp to have `WARP_ROWS`."""
BUSY = MULTIPROCESSORS * 16
"""Warps that keep the device busy. A kernel with fewer programs has more warps in each."""
VECTOR_BYTES = 16
"""The longest vector that a thread loads or stores."""
PLACES, HELD_PLACES = 4, 1 << 13
"""Elements of a thread that looks for the position of an extreme, and of the longest row to hold.

With 8 of a thread, the argmax of 704 rows of 90,001 floats took 134 us instead of 70.
"""
SCANNED = 1 << 10
"""The elements of a row that a scan in a loop holds at a time."""
LONG = 1 << 16
"""The length of a row, in elements, from which twice the bytes are in flight."""


def row_tile(kernel: FlatKernel, *, persistent: bool = True) -> Tile:
    inner = product(a.size for a in kernel.inner)
    outer = estimate(product(a.size for a in kernel.outer))
    columns = runs_along_outer(kernel)
    length = inner.constant
    held = sum(1 for n in kernel.nodes for e in loads(n.body) if e.index and n.inside)
    heavy = held * widest(kernel) > HELD_ROW_BYTES
    limit = ROW // max(1, power_of_two(held) // 2)
    one_sweep = in_one_sweep(kernel)
    sweeps = sum(part.sweep for part in segments(one_sweep.kernel))
    variances, exponentials = bool(one_sweep.means), bool(one_sweep.maxima)
    again = columns and (sweeps > 1 or variances)
    if again:
        limit = HELD_COLUMN
    elif columns:
        limit = 2 * COLUMN_TILE * widest(kernel) // COLUMN_BYTES
    elif sweeps == 2 and not variances:
        limit = min(limit, HELD_BYTES // max(1, _row_bytes(kernel)))
    places = any(gives_place(n.kind) for n in kernel.nodes)
    if places and not columns:
        limit = min(limit, HELD_PLACES)
    more = _more_warps(kernel, outer) if columns else 1
    if sweeps == 1 and not again:
        limit *= more
    in_loops = columns and variances and widest(kernel) >= 4
    wasteful = length is not None and sweeps == 1 and _is_wasteful(length, in_loops=in_loops)
    fits = persistent and length is not None and length <= limit and not wasteful
    if columns and length is not None and persistent:
        transposing = _transposing(kernel, length)
        if transposing is not None:
            return transposing
    held_whole = kernel.sorts or (kernel.scans and sweeps > 1)  # see `schedule/fusing/scans.py`
    if length is not None and (fits or held_whole):
        return _whole_rows(kernel, power_of_two(length), outer, columns=columns, heavy=heavy)
    if columns:
        return _columns(kernel, outer, more, exponentials=sweeps == 1 and exponentials)
    length = estimate(inner)
    if kernel.scans:
        return _tile(kernel, 1, min(SCANNED, power_of_two(length)), 4, persistent=False)
    if sweeps == 1 and places:
        each, most = PLACES, 32
    elif sweeps == 1:
        each, most = THREAD_BYTES // max(4, widest(kernel)), 16
    else:
        each, most = THREAD_BYTES // widest(kernel) * (2 if length >= LONG else 1), 32
    block = WARP * most * each
    while block > WARP * 8 * each and -(-length // block) * block > length * FULL:
        block //= 2
    return _tile(kernel, 1, block, block // (WARP * each), persistent=False)


def _columns(kernel: FlatKernel, outer: int, more: int, *, exponentials: bool) -> Tile:
    """Return a tile that steps down some columns. It may find no more than sums of exponentials."""
    x, size, warps = COLUMN_BYTES // widest(kernel), COLUMN_TILE * more, 4 * more
    if kernel.scans and more <= 2:
        x, size, warps = max(x, SCANNED_COLUMNS), COLUMN_TILE, 4
    elif not kernel.scans and (
        (widest(kernel) == 2 and not exponentials) or (widest(kernel) == 4 and more == 1)
    ):
        size //= 2
    x = min(x, power_of_two(outer))
    return _tile(kernel, x, size // x, warps, persistent=False)


def _more_warps(kernel: FlatKernel, outer: int) -> int:
    """Return how many times 4 warps a program that reduces columns should have: 1, 2 or 4.

    A multiprocessor should have 32 warps, also if there are few columns.
    """
    programs, more = max(1, outer * widest(kernel) // COLUMN_BYTES), 1
    while more < 4 and programs * more * 2 <= MULTIPROCESSORS * 8:
        more *= 2
    return more


def _transposing(kernel: FlatKernel, length: int) -> Tile | None:
    """Return a tile of rows that lie along two outer axes; None if that does not pay.

    If loads have their neighbours along one axis and stores along another, Triton transposes a tile
    in shared memory, so that both access whole sectors. It does not pay if rows begin within a
    sector: a softmax over 127 of 3904 x 127 x 251 floats took 1270 us instead of 514.
    """
    inside = [n for n in kernel.nodes if n.inside]
    read = with_most_points([e.index[0] for n in inside for e in loads(n.body) if e.index])
    stored = [n.address for n in inside if n.name in kernel.stored and not n.reduces]
    x, y = (_most_common_nearest(found, kernel) for found in (read, stored))
    if x is None or y is None or x == y or not {x, y} <= frozenset(kernel.outer) or kernel.sorts:
        return None
    axes = (*kernel.outer, *kernel.inner)
    if not all(begin_at_sectors(i, axes) for i in (*read, *stored)):
        return None
    rows = TRANSPOSED_BYTES // widest(kernel) // power_of_two(length)
    side = 1 << rows.bit_length() // 2
    blocks = [min(n, power_of_two(estimate(a.size))) for n, a in ((side, x), (rows // side, y))]
    if min(blocks) < FEWEST_TRANSPOSED:
        return None
    groups = (
        TileDimension("y", (y,), blocks[1]),
        TileDimension("x", (x,), blocks[0]),
        TileDimension("r", kernel.inner, power_of_two(length)),
    )
    rest = tuple(a for a in kernel.outer if a not in (x, y))
    elements = math.prod(g.block for g in groups)
    warps = min(16, max(1, elements // (WARP * TRANSPOSED_BY_THREAD)))
    return Tile(groups, rest, warps, persistent=True)


def _most_common_nearest(addresses: Sequence[Index], kernel: FlatKernel) -> Axis | None:
    """Return the axis along which most accesses have their neighbours."""
    axes = (*kernel.outer, *kernel.inner)
    found = Counter(a for index in addresses if (a := nearest(index, axes)) is not None)
    return max(found, key=lambda axis: found[axis], default=None)


def _is_wasteful(length: int, *, in_loops: bool) -> bool:
    """Return whether a tile of whole long rows would be far longer than they are.

    Variances of columns of float32 are found `in_loops` as fast, in groups of several elements.
    """
    shortest, waste = (LOOPED_COLUMN, WASTE_OF_COLUMNS) if in_loops else (LOOPED, WASTE)
    return length >= shortest and power_of_two(length) > length * waste


def _row_bytes(kernel: FlatKernel) -> int:
    """Return the bytes read per element of a row, without loads that are the same for all rows."""
    inner, outer = frozenset(kernel.inner), frozenset(kernel.outer)
    read = {e.key: e for n in kernel.nodes for e in loads(n.body) if e.index}
    axes = [(e.index[0].axes, itemsize(e.dtype)) for e in read.values()]
    return sum(size for where, size in axes if where & inner and where & outer)


def _whole_rows(kernel: FlatKernel, row: int, outer: int, *, columns: bool, heavy: bool) -> Tile:
    """Return a tile of whole rows, in as few warps as keep the device busy.

    Warps of one row combine their results through shared memory, and wait for each other.
    """
    x, width = 1, COLUMN_BYTES // widest(kernel)
    if columns:
        while x < width and x < outer and (x < 16 or x * row < 2 * COLUMN_TILE):
            x *= 2
        while x * row < COLUMN_TILE // 2 and outer >= 2 * x * MULTIPROCESSORS * 4:
            x *= 2
    else:
        while x * row < 1024 and outer >= 2 * x * MULTIPROCESSORS * 4:
            x *= 2
    elements = x * row
    each = 32 if columns else THREAD_BYTES // widest(kernel)
    most = min(32, max(1, power_of_two(elements // (WARP * each)), min(4, elements // WARP)))
    if heavy or not (columns or SHORT < row <= WARP_ROWS):
        return _tile(kernel, x, row, most, persistent=True)
    warps = min(most, max(1, elements // (WARP_COLUMNS if columns else WARP_ROWS)))
    while warps < most and warps * (outer // x) < BUSY:
        warps *= 2
    return _tile(kernel, x, row, warps, persistent=True)


def _tile(kernel: FlatKernel, x: int, r: int, warps: int, *, persistent: bool) -> Tile:
    groups = (TileDimension("x", kernel.outer, x), TileDimension("r", kernel.inner, r))
    return Tile(groups, (), warps, persistent)


def runs_along_outer(kernel: FlatKernel) -> bool:
    """Return whether at least half of the accesses have their neighbours along an outer axis.

    Neighbours are elements with the smallest stride: in a slice, they are not contiguous. Accesses
    of fewer elements than others, such as one for each row or column, do not count.
    """
    axes, inner = (*kernel.outer, *kernel.inner), frozenset(kernel.inner)
    inside = [n for n in kernel.nodes if n.inside]
    touched = [load.index[0] for n in inside for load in loads(n.body) if load.index]
    touched += [n.address for n in inside if n.name in kernel.stored and not n.reduces]
    along = [nearest(index, axes) for index in with_most_points(touched) if index.axes & inner]
    outer = sum(a in kernel.outer for a in along if a is not None)
    return outer > 0 and outer >= sum(a in kernel.inner for a in along if a is not None)


@dataclass(frozen=True)
class Groups:
    """Which elements of a looped tile lie in registers of the same thread.

    They are `near` neighbours of a row, and those `far` times, at equal distances. A group may be
    less than a thread has.
    """

    far: int
    near: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.far * self.near


def groups_of_threads(kernel: FlatKernel, tile: Tile) -> Groups:
    """Return groups that no kernel needs other threads for.

    Triton gives a thread of a row a vector of neighbours, as long as loads allow, or in some
    versions as long as stores do. If that is not one known length, a group has one element of each
    vector, whatever its length.
    """
    along, threads = tile.group("r").block, WARP * tile.warps
    if runs_along_outer(kernel):
        elements = tile.group("x").block * along // threads
        return Groups(max(1, min(elements * widest(kernel) // VECTOR_BYTES, along)), 1)
    inside, inner = [n for n in kernel.nodes if n.inside], frozenset(kernel.inner)
    read = {(e.index[0], e.dtype) for n in inside for e in loads(n.body) if e.index}
    stored = {(n.address, n.dtype) for n in inside if n.name in kernel.stored and not n.reduces}
    lengths, others = (
        {_vector(VECTOR_BYTES // itemsize(t), i, kernel) for i, t in touched if i.axes & inner}
        for touched in (read, stored)
    )
    near = max(lengths | others, default=0)
    if lengths == {near} and 0 not in lengths | others:
        near = min(near, along)
        return Groups(max(1, along // (threads * near)), near)
    longest = max((VECTOR_BYTES // itemsize(t) for _, t in read | stored), default=1)
    return Groups(max(1, along // (threads * longest)), 1)


def _vector(most: int, address: Index, kernel: FlatKernel) -> int:
    """Return how many neighbours of a row Triton accesses at once; 0 if that is not known."""
    last = kernel.inner[-1]
    beginning = address - last
    if last in beginning.axes:
        return 1
    if beginning.symbols:
        return 0
    steps = list(beginning.terms.values())
    if len(kernel.inner) > 1:
        steps.append(last.size.constant or 1)
    return next(n for n in (16, 8, 4, 2, 1) if n <= most and all(s % n == 0 for s in steps))
