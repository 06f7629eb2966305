"""Chooses the tiles of pointwise kernels: along all loops, along the two last, or square."""

from __future__ import annotations

from itertools import pairwise

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.triton.tiles import (
    FULL,
    MULTIPROCESSORS,
    THREAD_BYTES,
    WARP,
    Tile,
    TileDimension,
    addresses,
    power_of_two,
    widest,
)
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, Symbol, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Guarded, loads, walk

PROGRAM_BYTES = 4096
"""Bytes of the widest buffer per program of a pointwise kernel."""
LINES, STEPPING_LINES = 1024, 512
"""Elements of a tile of rows: in general, and where no vectors are loaded."""
STEPPING = 2
"""Elements of a thread where no vectors are loaded."""
STEPPED_ROWS = 4
"""Rows of a thread that reduces whole rows, one after the other in memory."""
ROW_VALUES = 2
"""From so many loads that are the same for a row, a tile of rows pays: it loads them once."""
SQUARE = 64
"""The side of a square tile of elements of at most 4 bytes."""


def point_tile(kernel: FlatKernel, *, tiled: bool = True) -> Tile:
    """Return the tile of a pointwise kernel. `tiled` allows other tiles than along all loops."""
    across = _across(kernel) if tiled else None
    if across is not None:
        return _square(kernel, *across)
    return (_lines(kernel) if tiled else None) or _points(kernel)


def _points(kernel: FlatKernel) -> Tile:
    axes = (*kernel.outer, *kernel.inner)
    size = estimate(product(a.size for a in axes))
    each = THREAD_BYTES // widest(kernel)
    block = PROGRAM_BYTES // widest(kernel) if axes else 1
    if kernel.step > 1 and _loads_no_vectors(kernel, axes[-1]):
        each, block = STEPPED_ROWS, STEPPED_ROWS * WARP * 4
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

    Divisions, indirect indices and values that depend on one axis are then computed once per row or
    column of the tile. None if a row would have too few elements, or too many beyond its end.

    The last axis is the first dimension of the tile. If a tile has no neighbours in memory, Triton
    gives those along its first dimension to neighbouring threads. Decision 18 has measurements.
    """
    axes = (*kernel.outer, *kernel.inner)
    if len(axes) < 2 or not (_has_costly_index(kernel) or _row_values(kernel) >= ROW_VALUES):
        return None
    length = axes[-1].size.constant
    if length is None or length < WARP:
        return None
    elements, each = LINES, max(STEPPING, 16 // widest(kernel, frozenset(axes[-1:])))
    if _loads_no_vectors(kernel, axes[-1]):
        elements, each = STEPPING_LINES, STEPPING
    blocks = [1 << k for k in range(5, 11) if 1 << k <= min(elements, power_of_two(length))]
    x = min(blocks, key=lambda block: (-(-length // block) * block > length * FULL, -block))
    if -(-length // x) * x > length * FULL:
        return None
    y = min(max(1, elements // x), power_of_two(estimate(axes[-2].size)))
    groups = (TileDimension("x", axes[-1:], x), TileDimension("y", axes[-2:-1], y))
    return Tile(groups, axes[:-2], max(1, min(8, x * y // (WARP * each))))


def _has_costly_index(kernel: FlatKernel) -> bool:
    """Return whether an index has quotients, remainders or data."""
    atoms = (atom for address in addresses(kernel) for atom in address.atoms)
    return any(not isinstance(atom, Axis | Symbol) for atom in atoms)


def _row_values(kernel: FlatKernel) -> int:
    """Return how many loads are the same for a row along the last axis, but not for all rows."""
    last = (*kernel.outer, *kernel.inner)[-1]
    found = {e.key: e.index[0] for n in kernel.nodes for e in loads(n.body) if e.index}
    return sum(bool(index.axes) and last not in index.axes for index in found.values())


def _loads_no_vectors(kernel: FlatKernel, axis: Axis) -> bool:
    """Return whether neighbours along an axis are apart in memory, or some are not loaded."""
    if any(_is_stepping(address, axis) for address in addresses(kernel)):
        return True
    parts = (e for n in kernel.nodes for e in walk(n.body))
    return any(isinstance(e, Guarded) and axis in e.condition.axes for e in parts)


def _is_stepping(index: Index, axis: Axis) -> bool:
    """Return whether an index skips elements from each point of an axis to the next.

    The first points do not count: a window at the edge is cut off.
    """
    places = [index.substitute({axis: to_index(point)}) for point in range(4, 8)]
    steps = {(after - before).constant for before, after in pairwise(places)}
    return len(steps) == 1 and abs(steps.pop() or 0) > 1


def _contiguous(address: Index, axes: tuple[Axis, ...]) -> Axis | None:
    """Return the longest axis along which neighbours are neighbours in memory."""
    found = [a for a in axes if address.coefficient(a) == 1]
    return max(found, key=lambda a: estimate(a.size), default=None)


def _square(kernel: FlatKernel, y: Axis, x: Axis) -> Tile:
    rest = tuple(a for a in (*kernel.outer, *kernel.inner) if a not in (x, y))
    side = SQUARE if widest(kernel) <= 4 else SQUARE // 2
    blocks = [min(side, power_of_two(estimate(a.size))) for a in (y, x)]
    return Tile((TileDimension("y", (y,), blocks[0]), TileDimension("x", (x,), blocks[1])), rest, 8)
