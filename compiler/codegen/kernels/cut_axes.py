"""codegen.cut_axes: cuts a loop into two where memory is read by a quotient and a remainder.

Lanes that read `x[i // 54, i % 54]` divide, and gather one element after the other. In two loops,
over 54 elements within the rows, they load neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

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
from tcdebug.compiler.schedule.align import Loops, moved
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass(frozen=True)
class Cut:
    """An axis as two: one over rows, and one over the elements of a row."""

    axis: Axis
    rows: Axis
    place: Axis
    values: Mapping[Atom, Index]
    """What the axis, and its quotients and remainders, are in the new axes."""

    def of(self, kernel: Kernel) -> Kernel:
        """Return the kernel with two loops for the axis. Points run in the same order."""
        outer, inner = self._level(kernel.outer), self._level(kernel.inner)
        loops = Loops(kernel.outer, kernel.inner, kernel.nodes)
        return replace(
            kernel, outer=outer, inner=inner, nodes=moved(loops, self.values, outer, inner)
        )

    def _level(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        parts = {self.axis: (self.rows, self.place)}
        return tuple(part for axis in axes for part in parts.get(axis, (axis,)))


def with_cut_axes(kernel: Kernel, *, inner: bool = True) -> Kernel:
    """Return the kernel with a loop for each row that indices divide an axis into.

    Without `inner`, the axes of reductions and scans stay whole.
    """
    if any(isinstance(n, Scatter) for n in kernel.nodes):
        return kernel
    while (cut := next(_cuts(kernel, inner), None)) is not None:  # rows may be cut again
        kernel = cut.of(kernel)
    return kernel


def _cuts(kernel: Kernel, inner: bool) -> Iterator[Cut]:
    divided = {
        atom
        for node in kernel.nodes
        for index in (*node.index, *(i for e in walk(node.body) for i in indices(e)))
        for atom in index.atoms
        if isinstance(atom, Division)
    }
    for axis in (*kernel.outer, *(kernel.inner if inner else ())):
        own = [atom for atom in divided if axis in atom.numerator.direct_atoms]
        if own and (cut := _cut(axis, own)) is not None:
            yield cut


def _cut(axis: Axis, divided: list[Division]) -> Cut | None:
    """Return the shortest rows into which divisions cut an axis.

    None if an element of the axis is in several rows of a division, or if sizes are not known.
    """
    size, lengths = axis.size.constant, [atom.denominator.constant or 0 for atom in divided]
    length = min(lengths)
    if size is None or not 0 < length < size or any(n % length for n in (*lengths, size)):
        return None
    if any(atom.numerator != to_index(axis) for atom in divided):
        return None
    rows = Axis(f"{axis.name}_row", to_index(size // length))
    place = Axis(axis.name, to_index(length))
    values: dict[Atom, Index] = {axis: to_index(rows) * length + to_index(place)}
    for atom, divisor in zip(divided, lengths, strict=True):
        row, rest = to_index(rows) // (divisor // length), to_index(rows) % (divisor // length)
        values[atom] = row if isinstance(atom, Quotient) else rest * length + to_index(place)
    return Cut(axis, rows, place, values)
