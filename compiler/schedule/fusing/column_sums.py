"""fuse.column_sums: on a CPU, add up columns in the kernel that reduces rows of the same elements.

The gradient of a normalisation reduces each row, computes elements from the results, and adds up
the columns for the gradients of its weights. One kernel does all of it: it goes through the rows,
and adds each element of a row that is still in the cache to the sum of its column.

The rows are divided into as many pieces as there are slots. A slot has a sum for each column, so
that threads share the pieces, and results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Indirect
from tcdebug.compiler.ir.graph import (
    Buffer,
    Pointwise,
    Reduction,
    loaded_addresses,
    reads,
    written,
)
from tcdebug.compiler.schedule.fusing.align import Loops, align, sweeps
from tcdebug.compiler.schedule.fusing.fusion import Fusion
from tcdebug.compiler.schedule.fusing.legality import illegal_read
from tcdebug.compiler.schedule.fusing.profit import pays, too_large

UNIT = "fuse.column_sums"
SLOTS = 16
"""The most pieces of the rows."""
FEWEST_SLOTS = 4
"""The fewest, if several threads would share the work of separate kernels."""
ROWS_OF_A_PIECE = 16
"""The fewest rows of a piece. The sums of a piece are set to zero, and added to those of others."""
SHORTEST_ROW = 64
"""Shorter rows are reduced several at a time, which costs less than reading them again."""
LARGEST = 1 << 19
"""The most bytes of all sums: half of a cache's second level."""
SHARED = 1 << 15
"""The fewest points that several threads share."""
SUMMED = 1024
"""The most rows whose elements are added in float."""


def join_columns(fusion: Fusion) -> None:
    """Merge each group that adds up columns into one that reduces rows of the same elements."""
    for columns in fusion.groups():
        for rows in fusion.groups():
            if rows is columns or not fusion.may_precede(rows, columns):
                continue
            if too_large(rows.loops.nodes, columns.loops.nodes, rows.work + columns.work):
                continue
            merged = with_column_sums(rows.loops, columns.loops, fusion.buffers)
            if merged is None:
                continue
            if fusion.gate.allows(UNIT, f"{rows.head}+{columns.head}"):
                fusion.join(rows, columns, merged)
                break


def slots(rows: int, columns: int, sums: int) -> int:
    """Return the number of pieces of the rows; 0 if columns should be added up separately."""
    room = LARGEST // (8 * columns * sums)
    count = min(SLOTS, room, max(1, rows // ROWS_OF_A_PIECE))
    return count if count >= FEWEST_SLOTS or rows * columns <= SHARED else 0


def with_column_sums(rows: Loops, columns: Loops, buffers: Mapping[str, Buffer]) -> Loops | None:
    """Return both groups as one that goes through the rows; None if that is wrong or does not pay.

    `rows` runs first. What it and `columns` compute at a point is computed there. The sums of
    columns, and what is computed from them, are nodes over the inner axes alone.
    """
    if not rows.inner or not rows.outer or not columns.inner or not columns.outer:
        return None
    if any(columns.is_across(n) for n in columns.nodes):
        return None
    if not _reduces(rows, columns) or not _saves(rows, columns, buffers):
        return None
    turned = Loops(columns.inner, columns.outer, columns.nodes)  # its sums are those of columns
    merged = next(align(rows, turned), None)
    if merged is None or not _fits(merged.outer, merged.inner, _count(merged)):
        return None
    if illegal_read(merged) is not None or _reads_sums(merged) or not pays(merged):
        return None
    return merged if _along_rows(merged, buffers) else None


def _reduces(rows: Loops, columns: Loops) -> bool:
    """Whether the groups only reduce, and columns are sums of floats that one sweep adds up."""
    nodes = (*rows.nodes, *columns.nodes)
    if any(n.out.device.type != "cpu" or written(n) for n in nodes):
        return False
    if any(type(n) not in (Pointwise, Reduction) for n in nodes):
        return False
    sums = [n for n in columns.nodes if isinstance(n, Reduction)]
    exact = all(n.kind == "sum" and n.body.dtype == torch.float32 for n in sums)
    return exact and sweeps(columns) == 1 and sweeps(rows) <= 2


def _saves(rows: Loops, columns: Loops, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the second group reads elements that the first one reads or computes."""
    numel = product(a.size for a in rows.axes)
    touched = {n.name for n in rows.nodes} | {name for n in rows.nodes for name in reads(n)}
    again = {name for n in columns.nodes for name in reads(n)} & touched
    return any(name in buffers and buffers[name].numel == numel for name in again)


def _count(loops: Loops) -> int:
    """The number of sums that a column has."""
    return sum(isinstance(n, Reduction) and loops.is_across(n) for n in loops.nodes)


def _fits(rows: Sequence[Axis], row: Sequence[Axis], sums: int) -> bool:
    """Whether the sums of all columns stay in the cache."""
    length = product(a.size for a in row).constant
    inside = product(a.size for a in rows[1:]).constant
    if length is None or length < SHORTEST_ROW or inside is None or inside > SUMMED:
        return False
    return slots(estimate(product(a.size for a in rows)), length, sums) > 0


def _reads_sums(loops: Loops) -> bool:
    """Whether what is computed in a row reads a column, whose sum is known only after all rows."""
    across = {n.name for n in loops.nodes if loops.is_across(n)}
    return any(across & reads(n) for n in loops.nodes if not loops.is_across(n))


def _along_rows(loops: Loops, buffers: Mapping[str, Buffer]) -> bool:
    """Whether all elements that the loops visit are contiguous in a row, or equal."""
    last = loops.inner[-1]
    for node in loops.nodes:
        visited = loaded_addresses(node, buffers)
        for address in (*visited, node.out.address(node.index)):
            if any(isinstance(atom, Indirect) for atom in address.atoms):
                return False
            if address.coefficient(last) not in (0, 1):
                return False
    return True
