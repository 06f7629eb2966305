"""Joins a short axis with the one around it where only results tell them apart."""

from __future__ import annotations

from dataclasses import replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, runs_on
from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.expr import indices, walk

SHORT = 16
"""An axis with fewer points does not fill a vector of floats."""
WORTH_DIVIDING = 16
"""The fewest points of a reduction for which the place of its result may take divisions."""


def joined_for_lanes(flat: FlatKernel) -> FlatKernel:
    """Return a kernel whose innermost outer axis, if it is short, is one with the axis around it.

    The inner loops see one axis whose points are neighbours in memory. Only what is done once for a
    point of both divides its place.
    """
    if not flat.accumulates or len(flat.outer) < 2 or flat.columns:
        return flat
    first, second = flat.outer[-2:]
    length, rows = second.size.constant, product(a.size for a in flat.inner).constant
    if length is None or length >= SHORT or rows is None or rows < WORTH_DIVIDING:
        return flat
    inside = [n for n in flat.nodes if n.inside]
    read = [i for n in inside for e in walk(n.body) for i in indices(e)]
    stored = [n.address for n in inside if not n.reduces]
    touched = [index for index in (*read, *stored) if {first, second} & index.axes]
    if not touched or not all(runs_on(index, first, second) for index in touched):
        return flat
    joined = Axis(second.name, first.size * second.size)
    place = to_index(joined)
    parts: dict[Atom, Index] = {first: place // length, second: place % length}
    whole: dict[Atom, Index] = {first: ZERO, second: place}
    nodes = tuple(
        replace(
            n,
            address=n.address.substitute(whole if n.inside and not n.reduces else parts),
            body=n.body.substitute(whole if n.inside else parts),
        )
        for n in flat.nodes
    )
    return replace(flat, outer=(*flat.outer[:-2], joined), nodes=nodes)
