"""Transposes memory that is contiguous along another axis than the lanes of the innermost loop.

Such an access touches one cache line per element. Therefore the loops run over blocks, and the
elements of a block are first copied to a small array that is contiguous along the lanes.

A kernel without reductions reads operands that are contiguous along an outer axis (`tiling`). A
kernel that reduces short rows has its lanes across them, and reads and writes whole rows
(`transposed_rows`). Results that are neighbours along another outer axis than the lanes are stored
in blocks (`transposed_results`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter
from tcdebug.compiler.codegen.cpp.emitters.text import index_text, loop
from tcdebug.compiler.codegen.halves.half_pairs import PAIR
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, to_index
from tcdebug.compiler.ir.cost import LONGEST_TRANSPOSED_ROW
from tcdebug.compiler.ir.expr import Expr, Guarded, Indirect, Load, rewrite, walk

ROWS = 16
"""Points of a block along the contiguous axis of the loads: a cache line of floats."""
COLUMNS = 64
"""Points of a block along the innermost axis."""
PAGE = 4096
"""The distance in bytes from which accesses are far apart: each is in a page of its own."""
SHORTEST_BYTES = 4
"""The bytes of the shortest numbers of which `ROWS` fill a vector."""
FEW = 8
"""Axes with fewer points are not divided into blocks."""


@dataclass(frozen=True)
class TransposedTile:
    """The array that replaces a load: the memory it is copied from, and the stride there."""

    name: str
    dtype: torch.dtype
    buffer: str
    address: Index
    stride: Index


@dataclass(frozen=True)
class Tiling:
    """A kernel in blocks. `across` is the axis along which the loads are contiguous in memory."""

    kernel: FlatKernel
    """The kernel with its strided loads replaced by loads from tiles."""
    across: Axis
    tiles: tuple[TransposedTile, ...]
    rows: int
    """The points of a block along `across`."""
    columns: int
    """The points of a block along the innermost axis."""


def block_start(axis: Axis) -> Axis:
    """Return the variable for the start of the current block along an axis."""
    return Axis(f"{axis.name}_low", axis.size)


@dataclass(frozen=True)
class BlockedAxis:
    """The C++ variables of an axis that is divided into blocks, as a whole or between bounds."""

    axis: Axis
    step: int
    first: str = "0"
    last: str = ""

    @property
    def low(self) -> str:
        return block_start(self.axis).name

    @property
    def high(self) -> str:
        return f"{self.axis.name}_high"

    @property
    def end(self) -> str:
        return f"index_min({self.low} + {self.step}, {self._last})"

    @property
    def _last(self) -> str:
        return self.last or index_text(self.axis.size)

    def enter(self, emit: CppEmitter) -> tuple[str, str]:
        """Open the loop. Returns the bounds of the axis in a block."""
        emit.enter(loop(block_start(self.axis), self.first, self._last, self.step))
        emit.innermost.add(f"const int64_t {self.high} = {self.end};")
        return self.low, self.high


def tiling(kernel: FlatKernel) -> Tiling | None:
    """Return the kernel in blocks; None if no load needs to be transposed."""
    if kernel.accumulates or not kernel.outer or not kernel.inner:
        return None
    inner = kernel.inner[0]
    candidates = {axis: _contiguous_across(kernel, axis, inner) for axis in kernel.outer}
    across = max(candidates, key=lambda axis: len(candidates[axis]))
    if not candidates[across] or any(_is_short(axis) for axis in (across, inner)):
        return None
    rows, columns = ROWS, COLUMNS
    if _reads_far(kernel, candidates[across], across):
        rows, columns = columns, rows
    row, column = (to_index(a) - to_index(block_start(a)) for a in (across, inner))
    starts: dict[Atom, Index] = {a: to_index(block_start(a)) for a in (across, inner)}
    instead: dict[str, Expr] = {}
    tiles: list[TransposedTile] = []
    for load in candidates[across]:
        (address,) = load.index
        stride = address.coefficient(inner)
        assert stride is not None
        name = f"tile_{len(tiles)}"
        tiles.append(
            TransposedTile(name, load.dtype, load.buffer, address.substitute(starts), stride)
        )
        instead[load.key] = Load(load.dtype, name, (row * columns + column,))
    nodes = tuple(
        replace(n, body=rewrite(n.body, lambda e: instead.get(e.key, e))) for n in kernel.nodes
    )
    return Tiling(replace(kernel, nodes=nodes), across, tuple(tiles), rows, columns)


def _reads_far(kernel: FlatKernel, transposed: Iterable[Load], across: Axis) -> bool:
    """Return whether rows of loads are far apart, but those of results are not.

    Few rows at a time, read for longer, suit the prefetching of a processor and its pages. They
    fill vectors of numbers of four bytes, not of shorter ones.
    """
    touched = (e.dtype for node in kernel.nodes for e in walk(node.body))
    if any(dtype.itemsize < SHORTEST_BYTES for dtype in touched):
        return False
    inner = kernel.inner[0]
    read = [(e.index[0].coefficient(inner), e.dtype.itemsize) for e in transposed]
    stored = [
        (node.address.coefficient(across), node.dtype.itemsize)
        for node in kernel.nodes
        if node.name in kernel.stored
    ]
    return all(_is_far(*step) for step in read) and not any(_is_far(*step) for step in stored)


def _is_far(step: Index | None, size: int) -> bool:
    return step is None or step.constant is None or abs(step.constant) * size >= PAGE


def _contiguous_across(kernel: FlatKernel, axis: Axis, inner: Axis) -> list[Load]:
    """Return the loads that are contiguous along an outer axis, and strided along the innermost."""
    found: dict[str, Load] = {}
    for node in kernel.nodes:
        for load in _always_read(node.body):
            if load.index and not any(isinstance(a, Indirect) for a in load.index[0].atoms):
                stride = load.index[0].coefficient(inner)
                if load.index[0].coefficient(axis) == 1 and stride not in (None, 0, 1):
                    found[load.key] = load
    return list(found.values())


def _always_read(body: Expr) -> Iterator[Load]:
    """Yield the loads that every point makes. Guarded loads may be out of bounds."""
    stack = [body]
    seen: set[str] = set()
    while stack:
        node = stack.pop()
        if node.key in seen:
            continue
        seen.add(node.key)
        if isinstance(node, Load):
            yield node
        stack += (node.condition,) if isinstance(node, Guarded) else node.operands


def _is_short(axis: Axis) -> bool:
    size = axis.size.constant
    return size is not None and size < FEW


LARGEST_STEP = 4
"""The most elements between neighbours of a row that is transposed."""
LARGEST_TILES = 1 << 18
"""The most bytes of the arrays of a kernel, which stay in the second level of the cache."""


@dataclass(frozen=True)
class RowTile:
    """The array for some rows of a buffer, one per lane: element r of row l is at [r * lanes + l].

    Its name is that of the load's array, or of the node that is stored through it.
    """

    name: str
    dtype: torch.dtype
    buffer: str
    address: Index
    """That of the first element of the first row."""
    stride: Index
    """The elements from one row to the next."""
    step: int
    """The elements from one element of a row to the next."""
    stored: bool


@dataclass(frozen=True)
class TransposedRows:
    """A kernel whose lanes run across rows that are contiguous in memory."""

    kernel: FlatKernel
    """The kernel with its accesses to such rows replaced by accesses to the arrays."""
    tiles: tuple[RowTile, ...]
    place: Index
    """The place of a point in the arrays."""
    size: int
    """The length of the arrays."""
    length: int
    """The points of a row."""


def first_lane(lane: Axis) -> Axis:
    """Return the variable for the place of the first of the lanes that are processed together."""
    return Axis("from", lane.size)


def row_step(address: Index, lane: Axis, inner: tuple[Axis, ...]) -> int:
    """The distance in elements between neighbours of a row that is transposed; 0 if it is not.

    A row is transposed if it lies along the only inner axis, that axis is short, and the rows of
    neighbouring lanes are not adjacent in memory.
    """
    size = inner[0].size.constant if len(inner) == 1 else None
    if size is None or not 2 <= size <= LONGEST_TRANSPOSED_ROW:
        return 0
    if any(isinstance(atom, Indirect) for atom in address.atoms):
        return 0
    step, stride = address.coefficient(inner[0]), address.coefficient(lane)
    if stride in (None, 0, 1) or step is None or step.constant is None:
        return 0
    return step.constant if 1 <= step.constant <= LARGEST_STEP else 0


def transposed_rows(kernel: FlatKernel, lane: Axis, lanes: int) -> TransposedRows | None:
    """Return the kernel with rows in arrays of so many lanes; None if it has no such rows."""
    inner = kernel.inner[0]
    place = to_index(inner) * lanes + (to_index(lane) - to_index(first_lane(lane)))
    start: dict[Atom, Index] = {lane: to_index(first_lane(lane)), inner: to_index(0)}
    tiles: list[RowTile] = []
    instead: dict[str, Expr] = {}

    def add(name: str, dtype: torch.dtype, buffer: str, address: Index, *, stored: bool) -> None:
        stride, step = address.coefficient(lane), row_step(address, lane, kernel.inner)
        assert stride is not None
        tiles.append(RowTile(name, dtype, buffer, address.substitute(start), stride, step, stored))

    for node in kernel.nodes:
        for load in _always_read(node.body) if node.inside else ():
            if load.key in instead or not load.index:
                continue
            if row_step(load.index[0], lane, kernel.inner):
                name = f"rows_{len(tiles)}"
                add(name, load.dtype, load.buffer, load.index[0], stored=False)
                instead[load.key] = Load(load.dtype, name, (place,))
    nodes: list[FlatNode] = []
    for node in kernel.nodes:
        address = node.address
        stores = node.name in kernel.stored and node.inside and not node.reduces
        if stores and row_step(address, lane, kernel.inner) == 1:
            add(f"rows_of_{node.name}", node.dtype, node.name, address, stored=True)
            address = place
        body = rewrite(node.body, lambda e: instead.get(e.key, e))
        nodes.append(replace(node, address=address, body=body))
    length = inner.size.constant
    if not tiles or length is None:
        return None
    size = length * lanes
    if sum(tile.dtype.itemsize for tile in tiles) * size > LARGEST_TILES:
        return None
    return TransposedRows(replace(kernel, nodes=tuple(nodes)), tuple(tiles), place, size, length)


@dataclass(frozen=True)
class TransposedResults:
    """A kernel whose results are neighbours along an outer axis, and not along the lanes."""

    kernel: FlatKernel
    """The kernel with its results in the arrays of a block."""
    across: Axis
    """The outer axis, divided into blocks of ROWS points."""
    tiles: tuple[RowTile, ...]


def transposed_results(kernel: FlatKernel, lane: Axis, lanes: int) -> TransposedResults | None:
    """Return the kernel with results in arrays of so many lanes; None if it needs none.

    A result per lane and point of an outer axis is stored in an array, element r of lane l at
    [r * lanes + l], and a block of them is transposed to memory.
    """
    stored = [node for node in kernel.nodes if node.name in kernel.stored]
    near = (a for a in kernel.outer if all(n.address.coefficient(a) == 1 for n in stored))
    across = next(near, lane)
    if across == lane or _is_short(across) or _is_short(lane) or not all(map(_is_result, stored)):
        return None
    first = to_index(first_lane(lane)), to_index(block_start(across))
    start: dict[Atom, Index] = {lane: first[0], across: first[1]}
    place = (to_index(across) - first[1]) * lanes + (to_index(lane) - first[0])
    tiles: list[RowTile] = []
    nodes: list[FlatNode] = []
    for node in kernel.nodes:
        if node.name in kernel.stored:
            stride = node.address.coefficient(lane)
            if stride is None:
                return None
            name, address = f"rows_of_{node.name}", node.address.substitute(start)
            tiles.append(RowTile(name, node.dtype, node.name, address, stride, 1, stored=True))
            node = replace(node, address=place)
        nodes.append(node)
    return TransposedResults(replace(kernel, nodes=tuple(nodes)), across, tuple(tiles))


def _is_result(node: FlatNode) -> bool:
    """Return whether a node is stored once per row, in memory that holds nothing before."""
    if node.into or node.scatters or node.dtype == PAIR or (node.inside and not node.reduces):
        return False
    return not any(isinstance(atom, Indirect) for atom in node.address.atoms)
