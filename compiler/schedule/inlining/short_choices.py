"""Keeps functions and the choices of short rows in different kernels on a CPU.

A padding, a join or a shift of rows of a few elements leaves loops that fill no vector, or that
compare and gather. What only moves elements takes little time there, but a function takes as long
for one element as for a vector. So the moved elements are stored, and the function is computed in
vectors that go on from one row to the next, or the reverse.
"""

from __future__ import annotations

from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.cost import has_function, itemsize
from tcdebug.compiler.ir.expr import Expr, Guarded, indices, indirect_atoms, loads, walk
from tcdebug.compiler.ir.graph import Node, Pointwise
from tcdebug.compiler.schedule.splitting.wide_gathers import FEWEST, UNROLLED

VECTOR_BYTES = 64
LONGEST = 2
"""The vectors of the longest row."""
WASTEFUL = 1.5
"""From so many times the elements of a row on, its vectors are worth a kernel without rows."""


def apart(producer: Node, consumer: Node) -> bool:
    """Return whether a producer is stored because it or its consumer chooses within short rows.

    The other one computes a function.
    """
    if not isinstance(producer, Pointwise) or not isinstance(consumer, Pointwise):
        return False
    if producer.out.device.type != "cpu":
        return False
    functions = has_function(producer.body), has_function(consumer.body)
    if functions == (False, True):
        return _chooses(producer) and _in_place(producer, consumer)
    fewer = estimate(producer.out.numel) <= estimate(consumer.out.numel)
    return functions == (True, False) and fewer and _chooses(consumer)


def _chooses(node: Pointwise) -> bool:
    """Return whether a node of many short rows chooses what it reads by its place."""
    axis = nearest(node.out.address(node.index), node.axes)
    length = None if axis is None else axis.size.constant
    if axis is None or length is None or length <= UNROLLED:
        return False
    count, lanes = node.out.numel.constant, VECTOR_BYTES // itemsize(node.out.dtype)
    if count is None or count < FEWEST or length > LONGEST * lanes:
        return False
    # what is left over takes smaller vectors
    steps = length // lanes + (length % lanes).bit_count()
    wasteful = steps * lanes >= WASTEFUL * length
    longer = length > lanes
    return any(_ends_vectors(e, axis, wasteful=wasteful, longer=longer) for e in walk(node.body))


def _ends_vectors(expr: Expr, axis: Axis, *, wasteful: bool, longer: bool) -> bool:
    """Return whether an expression leaves vectors that are not full.

    A comparison in a row is a mask, and an index that is the same along a row ends the vectors with
    it: both matter only if the vectors of a row are `wasteful`, and a mask only in rows that are
    `longer` than a vector.
    """
    if isinstance(expr, Guarded):
        return wasteful and longer and axis in expr.condition.axes
    computed = [atom.expr for index in indices(expr) for atom in indirect_atoms(index)]
    return any(axis in e.axes or (wasteful and e.axes) for e in computed)


def _in_place(producer: Pointwise, consumer: Pointwise) -> bool:
    """Return whether a consumer reads and stores all elements where a producer has them."""
    read = [load for load in loads(consumer.body) if load.buffer == producer.name]
    return producer.out.numel == consumer.out.numel and all(
        producer.out.address(load.index) == consumer.out.address(consumer.index) for load in read
    )
