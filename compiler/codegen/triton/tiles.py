"""Divides the loops of a kernel into the tiles of Triton programs.

A tile has two dimensions: `y` and `x` in a pointwise kernel, `x` and `r` in one that accumulates,
where r runs over the inner loops. The sizes are chosen without measuring: enough bytes in flight
for each multiprocessor, vectors of 16 bytes, no spilled registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.codegen.triton.online_softmax import online
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, Symbol, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import loads

WARP = 32
MULTIPROCESSORS = 132
"""The number of an H100 or H200. Choices based on it are good enough on other devices."""
ROW = 1 << 15
"""The longest row, in elements, that the registers of one program can hold."""
THREAD_BYTES = 32
"""Bytes of the widest buffer per thread: two loads of 16 bytes in flight."""
PROGRAM_BYTES = 4096
"""Bytes of the widest buffer per program of a pointwise kernel."""
COLUMN_TILE = 2048
"""Elements of a tile that reduces over a strided axis, for 4 warps."""
FULL = 1.15
"""The most elements that the tiles of a row may cover, relative to the length of the row."""
LOOPED, WASTE = 1 << 12, 1.5
"""From this length, a loop reads a row as fast as a tile that is longer than it by this factor."""
COLUMN_BYTES = 128
"""Bytes of a row of a tile that reduces over a strided axis."""
SIDE_BYTES, PATCH = 32, 1 << 14
"""Bytes of a side of a rectangle of rows, and the most elements of its rows."""
HELD_BYTES = 1 << 13
"""The most bytes of rows, read by two sweeps, to hold in registers; longer rows are read again."""
WARP_ROWS, WARP_COLUMNS = 1024, 2048
"""Elements of whole rows, or of whole columns, for each warp of a program."""
SHORT = 64
"""The longest row, in elements, for which a warp has as many elements as in a pointwise kernel."""
HELD_ROW_BYTES = 48
"""The most bytes of the rows that a kernel reads, per element, for a warp to have `WARP_ROWS`."""
BUSY = MULTIPROCESSORS * 16
"""Warps that keep the device busy. A kernel with fewer programs has more warps in each."""
LONG = 1 << 16
"""The length of a row, in elements, from which twice the bytes are in flight."""
LINES = 1024
"""Elements of a tile of rows whose indices are costly."""
SQUARE = 64
"""The side of a square tile of elements of at most 4 bytes."""


@dataclass(frozen=True)
class TileDimension:
    """The axes that one dimension of a tile covers, in row-major order."""

    name: str
    axes: tuple[Axis, ...]
    block: int
    patch: int = 0
    """If not 0, a block is a rectangle of its two axes, with so many points along the second."""

    @property
    def size(self) -> Index:
        """The number of points along the dimension, with those of rectangles beyond the edges."""
        return product(self._whole(a) for a in self.axes)

    def _whole(self, axis: Axis) -> Index:
        if not self.patch:
            return axis.size
        side = self.patch if axis == self.axes[1] else self.block // self.patch
        return ((axis.size + (side - 1)) // to_index(side)) * side

    @property
    def exact(self) -> bool:
        """Whether the size is known to be a multiple of the block, so that no mask is needed."""
        if self.block == 1 and self.name != "r":  # one program per point
            return True
        if self.patch:
            return self.size == product(a.size for a in self.axes)
        size = self.size.constant
        return size is not None and size > 0 and size % self.block == 0


@dataclass(frozen=True)
class Tile:
    """The dimensions of a tile. A program has a single value of each axis in `alone`."""

    groups: tuple[TileDimension, TileDimension]
    alone: tuple[Axis, ...]
    warps: int
    persistent: bool = False
    """Whether the tile covers the inner loops completely."""
    stages: int = 3
    """Software pipelining: the loads of a loop that Triton keeps in flight, where it can."""

    @property
    def constants(self) -> dict[str, int]:
        """The compile-time constants of a kernel and their values."""
        return {f"{g.name.upper()}BLOCK": g.block for g in self.groups}

    def group(self, name: str) -> TileDimension:
        """Return the dimension with a name."""
        return next(g for g in self.groups if g.name == name)

    def resized(self, blocks: dict[str, int], warps: int) -> Tile:
        """Return the tile with other block sizes and another number of warps."""
        groups = [replace(g, block=blocks.get(g.name, g.block)) for g in self.groups]
        return replace(self, groups=(groups[0], groups[1]), warps=warps)


def power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def choose(kernel: FlatKernel, *, tiled: bool = True, persistent: bool = True) -> Tile:
    """Return the tile of a kernel.

    `tiled` allows square tiles, `persistent` whole rows in registers.
    """
    if kernel.accumulates:
        return _rows(kernel, persistent=persistent)
    across = _across(kernel) if tiled else None
    if across is not None:
        return _square(kernel, *across)
    return (_lines(kernel) if tiled else None) or _points(kernel)


def widest(kernel: FlatKernel) -> int:
    """Return the bytes of the widest element accessed that varies along the loops of a program."""
    along = frozenset(kernel.inner if kernel.accumulates else (*kernel.outer, *kernel.inner))
    touched = [(n.address, n.dtype) for n in kernel.nodes if n.name in kernel.stored]
    touched += [(e.index[0], e.dtype) for n in kernel.nodes for e in loads(n.body) if e.index]
    return max((itemsize(t) for where, t in touched if where.axes & along), default=4)


def addresses(kernel: FlatKernel) -> list[Index]:
    """Return the addresses of stores, then those of loads."""
    stores = [n.address for n in kernel.nodes if n.name in kernel.stored]
    return stores + [load.index[0] for n in kernel.nodes for load in loads(n.body) if load.index]


# -- points ---------------------------------------------------------------------------------


def _points(kernel: FlatKernel) -> Tile:
    axes = (*kernel.outer, *kernel.inner)
    size = estimate(product(a.size for a in axes))
    each = THREAD_BYTES // widest(kernel)
    block = PROGRAM_BYTES // widest(kernel) if axes else 1
    while block > 128 and size < block * MULTIPROCESSORS:
        block //= 2
    warps = min(4, max(block // (WARP * each), min(4, block // WARP)))
    return Tile((TileDimension("y", (), 1), TileDimension("x", axes, block)), (), max(1, warps))


def _across(kernel: FlatKernel) -> tuple[Axis, Axis] | None:
    """(y, x) if some accesses are contiguous along x and others along y, else None.

    Those that do not vary along both do not count: a cache holds all of their elements.
    """
    axes, along = (*kernel.outer, *kernel.inner), dict[Axis, list[Index]]()
    for address in addresses(kernel):
        axis = _contiguous(address, axes)
        if axis is not None:
            along.setdefault(axis, []).append(address)
    if len(along) < 2 or any(estimate(a.size) < 16 for a in [*along][:2]):
        return None
    x, y = [*along][:2]
    return (y, x) if any(x in address.axes for address in along[y]) else None


def _lines(kernel: FlatKernel) -> Tile | None:
    """Return a tile along the two last axes, if that saves much of the arithmetic of indices.

    Divisions and indirect indices that depend on one axis are then computed once per row or column
    of the tile. None if a row would have too few elements, or too many beyond its end.
    """
    axes = (*kernel.outer, *kernel.inner)
    if len(axes) < 2 or not any(_is_costly(address) for address in addresses(kernel)):
        return None
    length = axes[-1].size.constant
    if length is None or length < WARP:
        return None
    blocks = (1 << k for k in range(5, 11) if 1 << k <= power_of_two(length))
    x = min(blocks, key=lambda block: (-(-length // block) * block > length * FULL, -block))
    if -(-length // x) * x > length * FULL:
        return None
    y = min(max(1, LINES // x), power_of_two(estimate(axes[-2].size)))
    groups = (TileDimension("y", axes[-2:-1], y), TileDimension("x", axes[-1:], x))
    return Tile(groups, axes[:-2], max(1, min(4, x * y // (WARP * 4))))


def _is_costly(address: Index) -> bool:
    """Return whether an index has quotients, remainders or data."""
    return any(not isinstance(atom, Axis | Symbol) for atom in address.atoms)


def _contiguous(address: Index, axes: tuple[Axis, ...]) -> Axis | None:
    """Return the longest axis along which neighbours are neighbours in memory."""
    found = [a for a in axes if address.coefficient(a) == 1]
    return max(found, key=lambda a: estimate(a.size), default=None)


def _square(kernel: FlatKernel, y: Axis, x: Axis) -> Tile:
    rest = tuple(a for a in (*kernel.outer, *kernel.inner) if a not in (x, y))
    side = SQUARE if widest(kernel) <= 4 else SQUARE // 2
    blocks = [min(side, power_of_two(estimate(a.size))) for a in (y, x)]
    return Tile((TileDimension("y", (y,), blocks[0]), TileDimension("x", (x,), blocks[1])), rest, 8)


# -- rows -----------------------------------------------------------------------------------


def _rows(kernel: FlatKernel, *, persistent: bool) -> Tile:
    inner = product(a.size for a in kernel.inner)
    outer = estimate(product(a.size for a in kernel.outer))
    columns = runs_along_outer(kernel)
    length = inner.constant
    held = sum(1 for n in kernel.nodes for e in loads(n.body) if e.index and n.inside)
    heavy = held * widest(kernel) > HELD_ROW_BYTES
    limit = ROW // max(1, power_of_two(held) // 2)
    sweeps = sum(part.sweep for part in segments(online(kernel)[0]))
    if columns:
        limit = 1024 if sweeps > 1 else 2 * COLUMN_TILE * widest(kernel) // COLUMN_BYTES
    elif sweeps == 2:
        limit = min(limit, HELD_BYTES // max(1, _row_bytes(kernel)))
    more = _more_warps(kernel, outer) if columns else 1
    if sweeps == 1:
        limit *= more
    wasteful = length is not None and sweeps == 1 and _is_wasteful(length)
    fits = persistent and length is not None and length <= limit and not wasteful
    if columns and length is not None and fits and (patched := _patched(kernel, length)):
        return patched
    held_whole = kernel.sorts or (kernel.scans and sweeps > 1)  # see `schedule/scans.py`
    if length is not None and (fits or held_whole):
        return _whole_rows(kernel, power_of_two(length), outer, columns=columns, heavy=heavy)
    if columns:
        return _columns(kernel, outer, more)
    length = estimate(inner)
    if kernel.scans:
        return _tile(kernel, 1, min(2048, power_of_two(length)), 4, persistent=False)
    if sweeps == 1:
        each, most = THREAD_BYTES // max(4, widest(kernel)), 16
    else:
        each, most = THREAD_BYTES // widest(kernel) * (2 if length >= LONG else 1), 32
    block = WARP * most * each
    while block > WARP * 8 * each and -(-length // block) * block > length * FULL:
        block //= 2
    return _tile(kernel, 1, block, block // (WARP * each), persistent=False)


def _columns(kernel: FlatKernel, outer: int, more: int) -> Tile:
    """Return a tile that steps down some columns."""
    x, size, warps = COLUMN_BYTES // widest(kernel), COLUMN_TILE * more, 4 * more
    if widest(kernel) == 4 and not kernel.scans and outer >= 2 * x * MULTIPROCESSORS * 4:
        x, size = 2 * x, size // 2
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


def _patched(kernel: FlatKernel, length: int) -> Tile | None:
    """Return a tile of whole rows that lie along two outer axes; None if that does not pay.

    If the loads have neighbours along one axis and the stores along another, a rectangle of both
    has whole sectors of memory along each. It does not pay if rows begin within a sector.
    """
    inside = [n for n in kernel.nodes if n.inside]
    read = [e.index[0] for n in inside for e in loads(n.body) if e.index]
    stored = [n.address for n in kernel.nodes if n.name in kernel.stored]
    points = [n.address for n in inside if n.name in kernel.stored and not n.reduces]
    x, y = (_most_common_nearest(found, kernel) for found in (read, stored))
    side = SIDE_BYTES // widest(kernel)
    if x is None or y is None or x == y or not {x, y} <= frozenset(kernel.outer):
        return None
    if any(a.size.constant is None or a.size.constant < side for a in (x, y)):
        return None
    if not all(_steps_by(side // 2, i, kernel, x) for i in read):
        return None
    if not all(_steps_by(side, i, kernel, y) for i in points):
        return None
    row, other = power_of_two(length), side
    while side * other * row > PATCH:
        other //= 2
    if other < 4:
        return None
    rest = tuple(a for a in kernel.outer if a not in (x, y))
    warps = max(4, side * other * row // (WARP * 32))
    groups = (
        TileDimension("x", (y, x), side * other, patch=side),
        TileDimension("r", kernel.inner, row),
    )
    return Tile(groups, rest, warps, persistent=True)


def _steps_by(count: int, address: Index, kernel: FlatKernel, along: Axis) -> bool:
    """Return whether rows along an axis begin at multiples of so many elements."""
    others = (a for a in (*kernel.outer, *kernel.inner) if a != along and a in address.axes)
    steps = (address.coefficient(a) for a in others)
    return all(s is not None and s.constant is not None and s.constant % count == 0 for s in steps)


def _most_common_nearest(addresses: Sequence[Index], kernel: FlatKernel) -> Axis | None:
    """Return the axis along which most accesses have their neighbours."""
    axes = (*kernel.outer, *kernel.inner)
    found = Counter(a for index in addresses if (a := nearest(index, axes)) is not None)
    return max(found, key=lambda axis: found[axis], default=None)


def _is_wasteful(length: int) -> bool:
    """Return whether a tile of a whole long row would be far longer than the row."""
    return length >= LOOPED and power_of_two(length) > length * WASTE


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
    that are the same for a whole row do not count.
    """
    axes, inner = (*kernel.outer, *kernel.inner), frozenset(kernel.inner)
    inside = [n for n in kernel.nodes if n.inside]
    touched = [load.index[0] for n in inside for load in loads(n.body) if load.index]
    touched += [n.address for n in inside if n.name in kernel.stored and not n.reduces]
    along = [nearest(index, axes) for index in touched if index.axes & inner]
    outer = sum(a in kernel.outer for a in along if a is not None)
    return outer > 0 and outer >= sum(a in kernel.inner for a in along if a is not None)
