"""Vector lanes with accumulators of their own, along an outer axis or in blocks along a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tcdebug.compiler.codegen.cpp.accumulator import (
    BLOCK,
    CppAccumulator,
    accumulators_of,
    leaves_work,
)
from tcdebug.compiler.codegen.cpp.data_errors import may_report
from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter, PointRun
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES
from tcdebug.compiler.codegen.cpp.transposed_loads import first_lane
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, loaded_dtypes
from tcdebug.compiler.codegen.kernels.sweeps import Segment, of_other_sweeps, reads_of
from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Expr, Guarded, IndexValue, Load, walk

LANES = 64
"""Outer points that column mode processes together."""
POINTS = BLOCK
"""The points of a row that are combined at once: the lanes of a vector of floats.

With two vectors, rows of 100 took 1.25 times as long."""
POINTS_OF_LONG_ROW = 32
"""Steps wait for each other: with one vector, maxima of bfloat16 took 1.2 times as long."""
POINTS_WITH_HALVES = 32
"""The same if a loop accesses elements of fewer bytes than a float.

g++ gives all vectors of a loop the same size. With 16 points, one of bfloat16 is half a vector, so
those of floats are, too: rows of 100 to 256 took up to 1.8 times as long, 1.15 times on average."""
LONG_ROW = 512
LANES_OF_HALVES = 32
"""The lanes of a vector of bfloat16."""
LONGEST_WHOLE = 384
"""The longest row that is left whole for the extreme of bfloat16 values, if it fills vectors."""
FEWEST_POINTS = 5
"""The fewest points of a row that fills a part of a block."""
LARGEST_BLOCK = 200
"""The most expression nodes of a loop that is written twice: for whole blocks, and for the last."""


class Lanes:
    """The loops over the lanes of a kernel, and the arrays with an element per lane.

    If the axis is short, several rows are processed together (`short_columns.py`): the lanes of the
    innermost loop then continue from one row to the next.
    """

    def __init__(self, axis: Axis | None, rows: int, emit: CppEmitter, kernel: FlatKernel) -> None:
        self.kernel = kernel
        self.axis = axis
        self.rows = rows
        self.emit = emit
        self.width = estimate(axis.size) * rows if axis is not None and rows > 1 else LANES
        """The length of the arrays."""

    @property
    def count(self) -> str:
        """The number of lanes of the innermost loop."""
        return str(self.width) if self.rows > 1 else "lanes"

    def enter(self, count: str = "lanes") -> None:
        """Open a loop over lanes."""
        assert self.axis is not None
        block = self.emit.enter(f"for (int l = 0; l < {count}; ++l)", (self.axis,))
        block.add(f"const int64_t {self.axis.name} = from + l;")
        first = to_index(first_lane(self.axis))
        self.emit.run(PointRun(self.axis, first, count, str(self.width), "l"))

    def leave(self, *, vectorize: bool) -> None:
        """Close a loop over lanes."""
        noted = f" reduction(|:{self.emit.missed})" if self.emit.missed else ""
        self.emit.leave(f"#pragma omp simd{noted}" if vectorize else "")

    def declare(self, nodes: Sequence[FlatNode]) -> None:
        """Declare the arrays for the values of nodes that have one per lane."""
        for node in nodes:
            self.emit.innermost.add(f"{TYPES[node.dtype]} kept_{node.name}[{self.width}];")

    def fold(self, accumulator: CppAccumulator, points: int) -> None:
        """Add partial results to the total: those of the points of a block, or one per lane."""
        block = self.emit.innermost
        if points:
            block.items.extend(accumulator.fold())
        elif accumulator.spread:
            block.add(f"#pragma omp simd reduction({accumulator.fold_clause})")
            loop = f"for (int l = 0; l < {accumulator.spread}; ++l)"
            block.add(f"{loop} {accumulator.close_chunk('[l]')}")
        elif self.axis is None:
            block.add(accumulator.close_chunk())
        else:
            loop = f"for (int l = 0; l < {self.count}; ++l)"
            block.add(f"{loop} {accumulator.close_chunk('[l]')}")

    def join(self, accumulators: Sequence[CppAccumulator]) -> None:
        """Merge the states of rows that were processed together, half of them into the other."""
        rows = self.rows
        while rows > 1:
            rows //= 2
            for accumulator in accumulators:
                joined = " ".join(accumulator.join("[l]", f"[{rows} * lanes + l]"))
                block = self.emit.innermost
                block.add("#pragma omp simd")
                block.add(f"for (int l = 0; l < {rows} * lanes; ++l) {{ {joined} }}")

    def repeat(self, nodes: Sequence[FlatNode]) -> None:
        """Repeat the values of the columns that a loop over several rows reads, for each row."""
        if self.rows == 1:
            return
        read = {name for n in self.kernel.nodes if n.inside for name in reads_of(n)}
        for node in (n for n in nodes if n.name in read):
            name = f"kept_{node.name}"
            block = self.emit.enter(f"for (int row = 1; row < {self.rows}; ++row)")
            block.add(f"for (int l = 0; l < lanes; ++l) {name}[row * lanes + l] = {name}[l];")
            self.emit.leave()


def block_of(kernel: FlatKernel, segment: Segment) -> int:
    """Return the points of a block if a sweep along rows may visit blocks; 0 if it may not.

    The last block overlaps the one before, so its points are computed twice. That is not possible
    if one of them overwrites an operand, or is added to the sum of a column.
    """
    size = kernel.inner[-1].size.constant if kernel.inner else None
    if not segment.sweep or size is None or size < FEWEST_POINTS or kernel.scans:
        return 0
    accumulators = accumulators_of(kernel, segment.nodes, None)
    if not all(a.folds for a in accumulators) or (accumulators and size < POINTS):
        return 0
    bodies = [expr for node in segment.nodes for expr in walk(node.body)]
    last = kernel.inner[-1]
    if any(may_report(expr, last) or _leaves_gaps(expr, last) for expr in bodies):
        return 0
    indexed = any(isinstance(expr, Guarded | IndexValue) and last in expr.axes for expr in bodies)
    guards = sum(isinstance(expr, Guarded) and last in expr.axes for expr in bodies)
    if indexed and not (accumulators and guards < 2 and leaves_work(segment.nodes, size)):
        return 0
    if any(n.into or n.across for n in segment.nodes) or len(bodies) > LARGEST_BLOCK:
        return 0
    if not accumulators:
        return _block_without_results(kernel, segment, size)
    whole = size <= LONGEST_WHOLE and size % LANES_OF_HALVES == 0
    if whole and any(map(_is_extreme_of_bfloat16, segment.nodes)):
        return 0
    if size >= LONG_ROW:
        return POINTS_OF_LONG_ROW
    return _block_of_row(kernel, segment, size)


def _leaves_gaps(expr: Expr, axis: Axis) -> bool:
    """Return whether an expression loads every second or nth element along an axis.

    g++ reads the gaps too, except behind the last point of a loop, so it computes the last points
    one by one: 8 of the 16 or 32 of a block, with vectors of 16.
    """
    if not isinstance(expr, Load) or not expr.index:
        return False
    step = expr.index[0].coefficient(axis)
    return step is not None and (step.constant is None or step.constant > 1)


def _block_of_row(kernel: FlatKernel, segment: Segment, size: int) -> int:
    longer = size >= POINTS_WITH_HALVES and _has_halves(kernel, segment)
    return POINTS_WITH_HALVES if longer else POINTS


def _block_without_results(kernel: FlatKernel, segment: Segment, size: int) -> int:
    """Return the points of a block of a sweep that only stores rows; 0 if whole rows are as fast.

    A longer row has so few points after the last whole vector that they do not matter. A row that
    fills a part of a block is stored as a whole, so its points must be neighbours in memory.
    """
    if not kernel.outer or size > LONG_ROW or any(n.into for n in kernel.nodes):
        return 0
    stored = [node for node in segment.nodes if node.name in kernel.stored]
    if size < POINTS and not all(_stores_neighbours(n, kernel.inner[-1]) for n in stored):
        return 0
    return _block_of_row(kernel, segment, size) if leaves_work(segment.nodes, size) else 0


def _stores_neighbours(node: FlatNode, axis: Axis) -> bool:
    stride = node.address.coefficient(axis)
    return stride is not None and stride.constant == 1


def _has_halves(kernel: FlatKernel, segment: Segment) -> bool:
    """Return whether a sweep loads or stores elements of fewer bytes than a float.

    It also loads what earlier sweeps stored, and computes again what they did not.
    """
    dtypes = {node.dtype for node in segment.nodes if not node.kind}
    earlier = {node.name: node for node in of_other_sweeps(kernel, segment)}
    left = list(segment.nodes)
    while left:
        node = left.pop()
        dtypes |= loaded_dtypes([node])
        for name in reads_of(node) & earlier.keys():
            read = earlier.pop(name)
            if name in kernel.stored:
                dtypes.add(read.dtype)
            else:
                left.append(read)
    return any(dtype.itemsize < torch.float32.itemsize for dtype in dtypes)


def _is_extreme_of_bfloat16(node: FlatNode) -> bool:
    """Return whether a node is a maximum or minimum of bfloat16 values.

    In blocks, rows of 64 to 384 that are whole vectors took 1.05 to 1.7 times as long, and other
    rows of 200 and 400 0.7 to 0.9 times. Rows of float16 are only converted in vectors in blocks.
    """
    loads = (e for e in walk(node.body) if isinstance(e, Load))
    return node.kind in ("max", "min") and any(e.dtype is torch.bfloat16 for e in loads)


def declare_points(emit: CppEmitter, accumulators: Sequence[CppAccumulator], points: int) -> None:
    """Declare the states of the points of a block, if there are blocks."""
    for accumulator in accumulators if points else ():
        for ctype, field, initial in accumulator.in_lanes.state:
            name = accumulator.in_lanes.variable(field)
            emit.innermost.add(f"{ctype} {name}[{points}];")
            emit.innermost.add(f"for (auto& lane : {name}) lane = {initial};")


def write_blocks(
    emit: CppEmitter,
    axis: Axis,
    points: int,
    bounds: tuple[str, str],
    body: Callable[[str], None],
    *,
    even: bool,
    results: bool,
) -> None:
    """Write a loop over the blocks of a row, and what is left over.

    `even` says that pieces of the row, if there are any, consist of whole blocks; `results` says
    that points are combined, so that each one must count once.
    `body` writes the points of a block; it takes the condition for a point to count, if any.
    """
    (low, high), name = bounds, axis.name
    start = emit.fresh(f"{name}_start")
    size = axis.size.constant
    if size is not None and size < points:
        _write_part(emit, axis, size, points, body)
        return
    whole = even and size is not None and size % points == 0
    first, condition = f"int64_t {start} = {low};", f"{start} <= {high} - {points};"
    if not whole:
        emit.innermost.add(first)
    for counts in ("",) if whole else ("", "counts[l]"):
        if counts:
            block = emit.enter(f"if ({start} < {high})", conditional=True)
            if results:
                block.add(f"const int32_t* counts = last_points<{points}>({high} - {start});")
            block.add(f"{start} = {high} - {points};")
        else:
            emit.enter(f"for ({first if whole else ';'} {condition} {start} += {points})")
        block = emit.enter(f"for (int l = 0; l < {points}; ++l)", (axis,))
        block.add(f"const int64_t {name} = {start} + l;")
        emit.run(PointRun(axis, to_index(Axis(start, axis.size)), str(points), str(points), "l"))
        place = Axis(f"{name}_place", axis.size)
        emit.compared[axis] = to_index(place)
        body(counts)
        if place.name in block.text():
            block.items.insert(1, f"const int64_t {place.name} = {start} + PLACES[l];")
        del emit.compared[axis]
        emit.leave("#pragma omp simd")
        emit.leave()


def _write_part(
    emit: CppEmitter, axis: Axis, size: int, points: int, body: Callable[[str], None]
) -> None:
    """Write a row that fills only the end of a block. Other points access no memory.

    Without instructions that load a part of a vector, the loop visits no other points. Results are
    stored after the loop: g++ would move a function to a condition under which it is stored.
    """
    emit.innermost.add(f"const int32_t* counts = last_points<{points}>({size});")
    start, outside = f"TCD_MASKS ? 0 : {points - size}", emit.innermost
    block = emit.enter(f"for (int l = {start}; l < {points}; ++l)", (axis,))
    block.add(f"const int64_t {axis.name} = l - {points - size};")
    emit.counted = axis
    body("")
    emit.counted = None
    for node in emit.parts:
        outside.add(f"{TYPES[node.dtype]} row_{node.name}[{points}];")
    emit.leave("#pragma omp simd")
    emit.store_parts(axis, points)
