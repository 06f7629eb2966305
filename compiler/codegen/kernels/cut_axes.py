"""codegen.cut_axes: cuts a loop into two where memory is read by a quotient and a remainder.

Lanes that read `x[i // 54, i % 54]` divide, and gather one element after the other. In two loops,
over 54 elements within the rows, they load neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcdebug.compiler.ir.arithmetic.index import (
    Atom,
    Axis,
    Division,
    Index,
    Quotient,
    to_index,
)
from tcdebug.compiler.ir.expr import indices, walk
from tcdebug.compiler.ir.graph import Scatter
from tcdebug.compiler.schedule.fusing.align import Loops, moved
from tcdebug.compiler.schedule.kernel import Kernel


def with_cut_axes(kernel: Kernel, *, inner: bool = True) -> Kernel:
    """Return the kernel with a loop for each row that indices divide an axis into.

    Points run in the same order. Without `inner`, the axes of reductions and scans stay whole.
    """
    if any(isinstance(n, Scatter) for n in kernel.nodes):
        return kernel
    while (cut := _with_one_cut(kernel, inner)) is not None:  # rows may be cut again
        kernel = cut
    return kernel


def _with_one_cut(kernel: Kernel, inner: bool) -> Kernel | None:
    divided = {
        atom
        for node in kernel.nodes
        for index in (*node.index, *(i for e in walk(node.body) for i in indices(e)))
        for atom in index.atoms
        if isinstance(atom, Division)
    }
    for axis in (*kernel.outer, *(kernel.inner if inner else ())):
        own = [atom for atom in divided if axis in atom.numerator.direct_atoms]
        length = _row_length(axis, own) if own else None
        if length is not None:
            return _cut(kernel, axis, own, length)
    return None


def _row_length(axis: Axis, divided: Sequence[Division]) -> int | None:
    """Return the elements of the shortest rows into which divisions cut an axis.

    None if an element of the axis is in several rows of a division, or if sizes are not known.
    """
    size, lengths = axis.size.constant, [atom.denominator.constant or 0 for atom in divided]
    length = min(lengths)
    if size is None or not 0 < length < size or any(n % length for n in (*lengths, size)):
        return None
    return length if all(atom.numerator == to_index(axis) for atom in divided) else None


def _cut(kernel: Kernel, axis: Axis, divided: Sequence[Division], length: int) -> Kernel:
    """Return the kernel with a loop over rows, and one within each, in the place of an axis."""
    rows = Axis(f"{axis.name}_row", axis.size // length)
    within = Axis(axis.name, to_index(length))
    row, place = to_index(rows), to_index(within)
    values: dict[Atom, Index] = {axis: row * length + place}
    for atom in divided:
        count = atom.denominator // length
        quotient = isinstance(atom, Quotient)
        values[atom] = row // count if quotient else row % count * length + place
    parts = {axis: (rows, within)}
    outer = tuple(part for a in kernel.outer for part in parts.get(a, (a,)))
    inner = tuple(part for a in kernel.inner for part in parts.get(a, (a,)))
    loops = Loops(kernel.outer, kernel.inner, kernel.nodes)
    return replace(kernel, outer=outer, inner=inner, nodes=moved(loops, values, outer, inner))
