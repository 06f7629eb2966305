"""Reductions over the rows of a matrix with few columns, several rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, runs_on
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.expr import Guarded, IndexValue, Indirect, Load, walk
from tcdebug.compiler.ir.operations import gives_place

LONGEST = 32
"""The most columns for which several rows are processed together."""
FEWEST = 8
"""The fewest steps over several rows that are worth merging their accumulators."""
VECTOR_OF_HALVES = 32
"""The lanes of a vector of bfloat16."""


def rows_together(kernel: FlatKernel, lane: Axis | None) -> int:
    """Return how many rows are processed together if the lanes run along an axis; 1 without reason.

    The columns of consecutive rows must be contiguous. Then row r, column c has the address of row
    0, column r * columns + c, and a loop over this range visits several rows. Each point of the
    range has its own accumulators, and those of a column are merged at the end.
    """
    columns = lane.size.constant if lane is not None else None
    if lane is None or columns is None or not 2 <= columns <= LONGEST or not kernel.inner:
        return 1
    if any(n.scans or gives_place(n.kind) for n in kernel.nodes):
        return 1
    rows = kernel.inner[-1]
    together = VECTOR_OF_HALVES // gcd(columns, VECTOR_OF_HALVES)
    size, steps = rows.size.constant, product(a.size for a in kernel.inner).constant
    if together == 1 or (size is not None and size < 2 * together):
        return 1
    if steps is not None and steps < FEWEST * together:
        return 1
    return together if all(_continues(i, rows, lane) for i in _places(kernel)) else 1


def _continues(index: Index | None, rows: Axis, lane: Axis) -> bool:
    """Return whether an address depends on neither axis, or each row continues the one before."""
    if index is None or any(isinstance(atom, Indirect) for atom in index.atoms):
        return False
    if not {rows, lane} & index.axes:
        return True
    return index.coefficient(lane) == 1 and runs_on(index, rows, lane)


def _places(kernel: FlatKernel) -> Iterator[Index | None]:
    """Yield the addresses that the inner loops visit; None for another use of an axis."""
    for node in kernel.nodes:
        if not node.inside:
            continue
        for expr in walk(node.body):
            if isinstance(expr, Load):
                yield from expr.index
            elif isinstance(expr, IndexValue | Guarded):
                yield None
        if node.name in kernel.stored and not node.reduces:
            yield node.address
