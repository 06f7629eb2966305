"""How the loops of a kernel are cut into the tiles of Triton programs.

A tile has two dimensions: `y` and `x` of a kernel that only visits points, `x` and `r` of one that
accumulates, r over the inner loops. The sizes are a first choice, without trying: enough bytes in
flight for each multiprocessor, vectors of 16 bytes, no register spilled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.codegen.triton.online_softmax import online
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.index import Axis, Index, product
from tcdebug.compiler.ir.size_estimate import estimate
from tcdebug.compiler.schedule.cost import itemsize

WARP = 32
MULTIPROCESSORS = 132
"""Of an H100 or H200; what is chosen by it is good enough on other devices."""
ROW = 1 << 15
"""Elements of a row that the registers of one program can hold."""
THREAD_BYTES = 32
"""Of the widest buffer for each thread: two loads of 16 bytes in flight."""
PROGRAM_BYTES = 4096
"""Of the widest buffer for a program that only visits points."""
COLUMN_TILE = 2048
"""Elements of a tile that reduces across memory, for 4 warps."""
FULL = 1.15
"""The last tile of a row may stand over its end by so much of the row."""
COLUMN_BYTES = 128
"""Of a row of such a tile."""
HELD_BYTES = 1 << 13
"""Of rows that two sweeps read: more is read from the cache again rather than kept."""
LONG = 1 << 16
"""Elements of a row that is worth twice the bytes in flight."""
SQUARE = 64


@dataclass(frozen=True)
class TileDimension:
    """Loops that one dimension of a tile runs along, the last axis fastest."""

    name: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Index:
        """The points along the group."""
        return product(a.size for a in self.axes)

    @property
    def exact(self) -> bool:
        """Whether blocks surely end where the group ends, so that nothing need be masked."""
        if self.block == 1 and self.name != "r":  # there are as many programs as points
            return True
        size = self.size.constant
        return size is not None and size > 0 and size % self.block == 0


@dataclass(frozen=True)
class Tile:
    """The dimensions of a tile; `alone` are axes of which a program has one value."""

    groups: tuple[TileDimension, TileDimension]
    alone: tuple[Axis, ...]
    warps: int
    persistent: bool = False
    """Whether a program holds all of the inner loops at once."""
    stages: int = 3
    """Loads of a loop that Triton has on their way at once, where it can."""

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for: constants of it -> their values."""
        return {f"{g.name.upper()}BLOCK": g.block for g in self.groups}

    def group(self, name: str) -> TileDimension:
        """The dimension of a name."""
        return next(g for g in self.groups if g.name == name)

    def resized(self, blocks: dict[str, int], warps: int) -> Tile:
        """The same tile in other sizes."""
        groups = [replace(g, block=blocks.get(g.name, g.block)) for g in self.groups]
        return replace(self, groups=(groups[0], groups[1]), warps=warps)


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, value - 1).bit_length()


def choose(kernel: FlatKernel, *, tiled: bool = True, persistent: bool = True) -> Tile:
    """The tile of a kernel. `tiled` allows squares, `persistent` whole rows in registers."""
    if kernel.accumulates:
        return _rows(kernel, persistent=persistent)
    across = _across(kernel) if tiled else None
    return _points(kernel) if across is None else _square(kernel, *across)


def widest(kernel: FlatKernel) -> int:
    """Bytes of the widest element that varies along the loops that a program runs."""
    along = frozenset(kernel.inner if kernel.accumulates else (*kernel.outer, *kernel.inner))
    touched = [(n.address, n.dtype) for n in kernel.nodes if n.name in kernel.stored]
    touched += [(e.index[0], e.dtype) for n in kernel.nodes for e in loads(n.body) if e.index]
    return max((itemsize(t) for where, t in touched if where.axes & along), default=4)


def addresses(kernel: FlatKernel) -> list[Index]:
    """The addresses of stores, then those of loads."""
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
    """(y, x) where some run along x in memory and others along y."""
    along: list[Axis] = []
    for address in addresses(kernel):
        axis = _contiguous(address, (*kernel.outer, *kernel.inner))
        if axis is not None and axis not in along:
            along.append(axis)
    if len(along) < 2 or any(estimate(a.size) < 16 for a in along[:2]):
        return None
    x, y = along[:2]
    return y, x


def _contiguous(address: Index, axes: tuple[Axis, ...]) -> Axis | None:
    """The longest axis along which neighbours are neighbours in memory."""
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
    columns = _runs_along_outer(kernel)
    length = inner.constant
    held = sum(1 for n in kernel.nodes for e in loads(n.body) if e.index and n.inside)
    limit = ROW // max(1, power_of_two(held) // 2)
    sweeps = sum(part.sweep for part in segments(online(kernel)[0]))
    if columns:
        limit = 1024 if sweeps > 1 else 2 * COLUMN_TILE * widest(kernel) // COLUMN_BYTES
    elif sweeps == 2:
        limit = min(limit, HELD_BYTES // max(1, _row_bytes(kernel)))
    if persistent and length is not None and length <= limit:
        return _whole_rows(kernel, power_of_two(length), outer, columns=columns)
    if columns:
        x = min(COLUMN_BYTES // widest(kernel), power_of_two(outer))
        return _tile(kernel, x, COLUMN_TILE // x, 4, persistent=False)
    length = estimate(inner)
    if kernel.scans:
        return _tile(kernel, 1, min(2048, power_of_two(length)), 4, persistent=False)
    each = THREAD_BYTES // widest(kernel) * (2 if length >= LONG else 1)
    block = WARP * 32 * each
    while block > WARP * 8 * each and -(-length // block) * block > length * FULL:
        block //= 2
    return _tile(kernel, 1, block, block // (WARP * each), persistent=False)


def _row_bytes(kernel: FlatKernel) -> int:
    """Bytes that are read for each element of a row, without what every row reads."""
    inner, outer = frozenset(kernel.inner), frozenset(kernel.outer)
    read = {e.key: e for n in kernel.nodes for e in loads(n.body) if e.index}
    axes = [(e.index[0].axes, itemsize(e.dtype)) for e in read.values()]
    return sum(size for where, size in axes if where & inner and where & outer)


def _whole_rows(kernel: FlatKernel, row: int, outer: int, *, columns: bool) -> Tile:
    x, width = 1, COLUMN_BYTES // widest(kernel)
    if columns:
        while x < width and x < outer and (x < 16 or x * row < 2 * COLUMN_TILE):
            x *= 2
    else:
        while x * row < 1024 and outer >= 2 * x * MULTIPROCESSORS * 4:
            x *= 2
    elements = x * row
    each = 32 if columns else THREAD_BYTES // widest(kernel)
    warps = min(32, max(1, power_of_two(elements // (WARP * each))))
    return _tile(kernel, x, row, max(warps, min(4, elements // WARP or 1)), persistent=True)


def _tile(kernel: FlatKernel, x: int, r: int, warps: int, *, persistent: bool) -> Tile:
    groups = (TileDimension("x", kernel.outer, x), TileDimension("r", kernel.inner, r))
    return Tile(groups, (), warps, persistent)


def _runs_along_outer(kernel: FlatKernel) -> bool:
    """Whether what the inner loops touch lies along an outer axis in memory.

    What is the same for all of a row is read once, and does not count.
    """
    inside = (n for n in kernel.nodes if n.inside)
    read = [load.index[0] for n in inside for load in loads(n.body) if load.index]
    touched = [index for index in read if index.axes & frozenset(kernel.inner)]
    along = [_contiguous(i, (*kernel.outer, *kernel.inner)) for i in touched]
    outer = sum(a in kernel.outer for a in along if a is not None)
    return outer > sum(a in kernel.inner for a in along if a is not None)
