"""codegen.repeats: computes an element that repeats along a row once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, Quotient, to_index
from tcdebug.compiler.ir.expr import indices, walk

FEWEST = 8
"""The fewest repetitions that get a loop: they fill a register of bfloat16."""


def without_repeats(kernel: FlatKernel) -> FlatKernel | None:
    """The kernel with a loop over repetitions inside the innermost loop; None if nothing repeats.

    An element at `i // 8` is read through an index, one lane after the other, in each of 8 points.
    """
    if kernel.accumulates or len(kernel.inner) != 1 or any(n.scatters for n in kernel.nodes):
        return None
    (axis,) = kernel.inner
    size = axis.size.constant
    counts = {q.denominator.constant for q in _quotients(kernel, axis)}
    count = counts.pop() if len(counts) == 1 else None
    if size is None or count is None or count < FEWEST or size % count or size == count:
        return None
    block, place = (
        Axis(f"{axis.name}_block", to_index(size // count)),
        Axis(axis.name, to_index(count)),
    )
    values: dict[Atom, Index] = {axis: to_index(block) * count + to_index(place)}
    nodes = tuple(
        replace(n, address=n.address.substitute(values), body=n.body.substitute(values))
        for n in kernel.nodes
    )
    if any(place in node.body.axes for node in nodes):
        return None
    return replace(kernel, outer=(*kernel.outer, block), inner=(place,), nodes=nodes)


def _quotients(kernel: FlatKernel, axis: Axis) -> Iterator[Quotient]:
    """Yield the quotients of an axis in what the kernel reads."""
    for node in kernel.nodes:
        for expr in walk(node.body):
            for index in indices(expr):
                for atom in index.atoms:
                    if isinstance(atom, Quotient) and axis in atom.numerator.axes:
                        yield atom
