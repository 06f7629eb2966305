"""Writes a kernel that goes through rows and adds their elements to the sums of their columns.

The rows are divided among slots, which threads share. Up to SUMMED rows at a time are added in
float, and these sums to the slot's in double. At the end, the sums of the slots are added.
"""

from __future__ import annotations

from collections.abc import Callable

from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter, Place
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, index_text, loop
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, row_major
from tcdebug.compiler.ir.arithmetic.index import product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.schedule.fusing.column_sums import SUMMED, slots


def add_to_column(emit: CppEmitter, kernel: FlatKernel, node: FlatNode) -> None:
    """Add the value of a node at the current point to the sum of its column."""
    value = emit.value(node.body).text
    place = index_text(row_major(kernel.inner))
    emit.innermost.add(f"column_{node.name}[{place}] += {value};")


def write_columns(
    emit: CppEmitter, kernel: FlatKernel, point: Callable[[], None], pragmas: tuple[str, str]
) -> None:
    """Write the loops over slots and rows, and one over columns for their results.

    `point` writes what is done in a row. `pragmas` stand before the loop over slots, and before one
    that can be vectorized.
    """
    shared, vector = pragmas
    length = product(a.size for a in kernel.inner).constant
    assert length is not None
    rows = estimate(product(a.size for a in kernel.outer))
    count = max(1, slots(rows, length, len(kernel.columns)))
    for node in kernel.columns:
        emit.innermost.add(f"double total_{node.name}[{count * length}];")
    emit.enter(f"for (int slot = 0; slot < {count}; ++slot)")
    _rows_of_slot(emit, kernel, point, count)
    emit.leave(shared)
    _results(emit, kernel, count, vector)


def _rows_of_slot(
    emit: CppEmitter, kernel: FlatKernel, point: Callable[[], None], count: int
) -> None:
    """Write the loops over the rows of a slot, whose sums begin with zero."""
    first, *others = kernel.outer
    length = product(a.size for a in kernel.inner).constant
    columns, size, lines = f"c < {length}", index_text(first.size), emit.innermost
    for node in kernel.columns:
        lines.add(f"double* const slot_{node.name} = total_{node.name} + slot * {length};")
        lines.add(f"for (int c = 0; {columns}; ++c) slot_{node.name}[c] = 0;")
    lines.add(f"const int64_t piece = ({size} + {count - 1}) / {count};")
    lines.add(f"const int64_t end = index_min((slot + 1) * piece, {size});")
    step = max(1, SUMMED // (product(a.size for a in others).constant or SUMMED))
    emit.enter(f"for (int64_t low = slot * piece; low < end; low += {step})", conditional=True)
    for node in kernel.columns:
        emit.innermost.add(f"float column_{node.name}[{length}];")
        emit.innermost.add(f"for (int c = 0; {columns}; ++c) column_{node.name}[c] = 0;")
    emit.enter(loop(first, "low", f"index_min(low + {step}, end)"), (first,))
    for axis in others:
        emit.enter(loop(axis, "0", index_text(axis.size)), (axis,))
    emit.collapse(kernel.outer)
    point()
    for _ in kernel.outer:
        emit.leave()
    for node in kernel.columns:
        added = f"slot_{node.name}[c] += column_{node.name}[c];"
        emit.innermost.add(f"for (int c = 0; {columns}; ++c) {added}")
    emit.leave()


def _results(emit: CppEmitter, kernel: FlatKernel, count: int, vector: str) -> None:
    """Write the loops over columns, which add up the slots and compute what depends on them."""
    length, place = product(a.size for a in kernel.inner).constant, row_major(kernel.inner)
    if count > 1:
        emit.enter(f"for (int slot = 1; slot < {count}; ++slot)")
        for node in kernel.columns:
            added = f"total_{node.name}[c] += total_{node.name}[slot * {length} + c];"
            emit.innermost.add(f"for (int c = 0; c < {length}; ++c) {added}")
        emit.leave()
    for axis in kernel.inner:
        emit.enter(loop(axis, "0", index_text(axis.size)), (axis,))
    for node in (n for n in kernel.nodes if n.across):
        if node.kind:
            name = f"sum_{node.name}"
            total = f"total_{node.name}[{index_text(place)}]"
            emit.innermost.add(f"const {TYPES[node.dtype]} {name} = (float){total};")
            value = Place(name, len(emit.blocks) - 1)
        else:
            value = emit.value(node.body)
        emit.values[node.name] = value
        if node.name in kernel.stored:
            emit.store(node, value)
    for number, _ in enumerate(kernel.inner):
        emit.leave(vector if number == 0 else "")
