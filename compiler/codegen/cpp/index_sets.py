"""Splits a loop where its conditions change, so that each part runs without them.

Joins, paddings, rolls and reflections choose what to read by comparing an index with a number, or
read through an index that is linear only on parts of an axis. Each part of the loop has no choice
and reads neighbours (index set splitting).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter
from tcdebug.compiler.codegen.kernels.flatten import FlatNode
from tcdebug.compiler.ir.arithmetic.index import Atom, Axis, Index, to_index
from tcdebug.compiler.ir.cost import has_function
from tcdebug.compiler.ir.expr import (
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    indices,
    indirect_atoms,
    loads,
    rewrite,
    walk,
)
from tcdebug.compiler.ir.linear_parts import SHORTEST, Changes, Linear, conjuncts, linear, truth

SHORTEST_NARROW = 8
"""SHORTEST for elements of 16 bits or fewer, for which processors without AVX-512 have no masks.

A join of two images of 56 x 56 in bfloat16 took 5.5 of inductor's time with conditions, now 0.5.
"""
SHORTEST_DIRECT = 2
"""SHORTEST for parts that read neighbours instead of elements through an index."""
SHORTEST_EXPENSIVE = 4
"""The same if these parts compute functions, which are slow for single elements."""
FEW, SHORTEST_OF_MANY = 8, 8
"""The same if there are more than a few parts, each of which takes g++ as long as a loop."""
LARGEST = 1200
"""The most expression nodes in all parts together."""


@dataclass(frozen=True)
class Part:
    """A loop over a range of the axis. The bodies of the nodes are those for this range."""

    low: int
    high: int
    nodes: tuple[FlatNode, ...]


@dataclass(frozen=True)
class Choice:
    """Parts for a condition that does not change along the axis, and parts for its opposite."""

    condition: Expr
    chosen: Choice | tuple[Part, ...]
    other: Choice | tuple[Part, ...]


Split = Choice | tuple[Part, ...]


def split(nodes: Sequence[FlatNode], axis: Axis) -> Split | None:
    """Return the parts of the loop over an axis; None if it has one part, or too many."""
    size = axis.size.constant
    if size is None or size < 2:
        return None
    if not any(_is_choice(e) for n in nodes for e in walk(n.body)):
        return None
    found = _by_invariants(_rewritten(tuple(nodes), _nested(axis)), axis, [LARGEST])
    if (
        isinstance(found, tuple)
        and len(found) == 1
        and not any(_simpler(new, old) for new, old in zip(found[0].nodes, nodes, strict=True))
    ):
        return None
    return found


def _simpler(new: FlatNode, old: FlatNode) -> bool:
    """Return whether a node has fewer choices than before."""
    counts = [sum(map(_is_choice, walk(node.body))) for node in (new, old)]
    return counts[0] < counts[1]


def _is_choice(node: Expr) -> bool:
    return isinstance(node, Guarded) or any(map(indirect_atoms, indices(node)))


def _reads_through(node: Expr, axis: Axis) -> bool:
    """Return whether a node reads through an index that depends on an axis."""
    return any(axis in atom.expr.axes for index in indices(node) for atom in indirect_atoms(index))


def _nested(axis: Axis) -> Callable[[Expr], Expr]:
    """Write a guard by several conditions as nested guards, those on other axes outside."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Guarded):
            return node
        conditions = conjuncts(node.condition)
        if len(conditions) == 1:
            return node
        body = node.body
        for condition in sorted(conditions, key=lambda c: axis not in c.axes):
            body = Guarded(node.dtype, condition, body, node.other)
        return body

    return change


def _by_invariants(nodes: tuple[FlatNode, ...], axis: Axis, left: list[int]) -> Split | None:
    """Split by the first condition on other axes, and what remains by ranges of this axis."""
    condition = _invariant(nodes, axis)
    if condition is None:
        return _by_ranges(nodes, axis, left)
    sides: list[Split] = []
    for value in (True, False):
        known = Constant(torch.bool, value)
        changed = _rewritten(nodes, _knowing(condition, known))
        side = _by_invariants(changed, axis, left)
        if side is None:
            return None
        sides.append(side)
    return Choice(condition, *sides)


def _invariant(nodes: Sequence[FlatNode], axis: Axis) -> Expr | None:
    """Return a condition of a guard that only other axes decide, and that reads no memory."""
    for node in nodes:
        for expr in reversed(list(walk(node.body))):  # those around others first
            if isinstance(expr, Guarded) and axis not in expr.condition.axes:
                parts = list(walk(expr.condition))
                if expr.condition.axes and not any(isinstance(p, Load) for p in parts):
                    return expr.condition
    return None


def _knowing(condition: Expr, value: Constant) -> Callable[[Expr], Expr]:
    def change(node: Expr) -> Expr:
        if node.key == condition.key:
            return value
        if isinstance(node, Guarded) and isinstance(node.condition, Constant):
            return node.body if node.condition.value else node.other
        return node

    return change


def _by_ranges(nodes: tuple[FlatNode, ...], axis: Axis, left: list[int]) -> tuple[Part, ...] | None:
    """The parts of an axis, in order; one if they would be short; None if they are too large."""
    size = axis.size.constant
    assert size is not None
    through = any(_reads_through(e, axis) for n in nodes for e in walk(n.body))
    direct = SHORTEST_EXPENSIVE if any(has_function(n.body) for n in nodes) else SHORTEST_DIRECT
    shortest = SHORTEST_NARROW if any(map(_chooses_narrow, nodes)) else SHORTEST
    shortest = direct if through else shortest
    parts: list[Part] = []
    ranges = [(0, size)]
    while ranges:
        low, high = ranges.pop()
        try:
            changed = _rewritten(nodes, _within(axis, low, high))
        except Changes as at:
            ranges += [(at.point, high), (low, at.point)]
            count = len(parts) + len(ranges)
            if count * (shortest if count <= FEW else max(shortest, SHORTEST_OF_MANY)) > size:
                return (Part(0, size, nodes),)
            continue
        left[0] -= sum(1 for n in changed for _ in walk(n.body))
        if left[0] < 0:
            return None
        parts.append(Part(low, high, changed))
    return tuple(parts)


def _chooses_narrow(node: FlatNode) -> bool:
    """Return whether a node reads elements of 16 bits, or fewer, under a condition."""
    guarded = (e for e in walk(node.body) if isinstance(e, Guarded))
    read = (load for guard in guarded for load in loads(guard))
    return any(load.index and load.dtype.itemsize <= 2 for load in read)


def _rewritten(nodes: tuple[FlatNode, ...], change: Callable[[Expr], Expr]) -> tuple[FlatNode, ...]:
    bodies = [rewrite(node.body, change) for node in nodes]
    return tuple(
        node if body is node.body else replace(node, body=body)
        for node, body in zip(nodes, bodies, strict=True)
    )


def _within(axis: Axis, low: int, high: int) -> Callable[[Expr], Expr]:
    """Simplify an expression for a range. Raises Changes if it differs within the range."""

    def change(node: Expr) -> Expr:
        if isinstance(node, Guarded):
            known = linear(node.condition, axis, low, high)
            if known is not None and not known.slope:
                return node.body if known.start else node.other
        if isinstance(node, Load | IndexValue):
            return _direct(node, axis, low, high)
        return node

    return change


def _direct(node: Load | IndexValue, axis: Axis, low: int, high: int) -> Expr:
    """Return a load whose indirect indices are direct where they are linear and in range."""
    values: dict[Atom, Index] = {}
    for index in indices(node):
        for atom in index.atoms:
            if not isinstance(atom, Indirect) or axis not in atom.expr.axes:
                continue
            place, size = linear(atom.expr, axis, low, high), atom.size.constant
            if place is None or size is None:
                continue
            if atom.checked and _is_negative(place, low, high):
                place = Linear(place.slope, place.start + size)
            if all(0 <= place.at(point) < size for point in (low, high - 1)):
                values[atom] = to_index(axis) * place.slope + place.start
    return node.substitute(values) if values else node


def _is_negative(value: Linear, low: int, high: int) -> bool:
    return truth(lambda point: value.at(point) < 0, low, high)


def write_parts(
    emit: CppEmitter, parts: Split, write: Callable[[tuple[FlatNode, ...], str, str], None]
) -> None:
    """Write the nodes and bounds of each part, inside the conditions that choose it."""
    if isinstance(parts, Choice):
        condition = emit.value(parts.condition).text
        for opening, side in ((f"if ({condition})", parts.chosen), ("else", parts.other)):
            emit.enter(opening, conditional=True)
            write_parts(emit, side, write)
            emit.leave()
        return
    emit.part = len(emit.blocks)
    for part in parts:
        write(part.nodes, str(part.low), str(part.high))
