"""Counts the elements that a node reads of a producer. A guard keeps some points from reading it.

A node that joins two tensors has as many points as both, but reads each in its own part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcdebug.compiler.ir.arithmetic.index import Axis, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Expr, Guarded, Load
from tcdebug.compiler.ir.graph import LoopNode
from tcdebug.compiler.ir.linear_parts import SHORTEST, conjuncts, fills_vectors, ranges

Intervals = tuple[tuple[int, int], ...]
"""Ranges of an axis, each from a point to before another one, in order."""
Region = Mapping[Axis, Intervals]
"""The points of a loop whose positions are in these ranges. Other axes are not restricted."""


@dataclass(frozen=True)
class Reads:
    """How a node reads a producer."""

    places: int
    """The different indices at which a point may read it."""
    elements: int
    """The elements that all points together read, each as often as it is read."""
    domain: int
    """The points of the node."""
    parts: int
    """The parts of the loops that read it. A part that reads it twice counts once."""


def guarded_reads(node: LoopNode, producer: str) -> Reads:
    """Return how a node reads a producer."""
    axes = (*node.axes, *node.over)
    domain = estimate(product(axis.size for axis in axes))
    cpu = node.out.device.type == "cpu"
    found = GuardedLoads(producer, short=axes[-1] if axes and cpu else None)
    found.visit(node.body, {})
    elements, regions = 0, set[str]()
    for places in found.regions.values():
        regions.update(places)
        elements += min(domain, sum(_points(region, domain) for region in places.values()))
    parts = len(regions) if elements <= domain else 1
    return Reads(len(found.regions), elements, domain, max(1, parts))


class GuardedLoads:
    """Finds the regions in which each element of a producer is read."""

    def __init__(self, producer: str, short: Axis | None) -> None:
        self.producer, self.short = producer, short
        self.regions: dict[str, dict[str, Region]] = {}
        """Key of a load -> key of a region -> region."""
        self._seen = set[tuple[str, str]]()

    def visit(self, expr: Expr, region: Region) -> None:
        """Note the loads of an expression that is evaluated in a region."""
        left = [(expr, region)]
        while left:
            node, here = left.pop()
            if (node.key, _key(here)) in self._seen:
                continue
            self._seen.add((node.key, _key(here)))
            if isinstance(node, Load) and node.buffer == self.producer:
                loops = self._loops(here)
                self.regions.setdefault(node.key, {})[_key(loops)] = loops
            if isinstance(node, Guarded):
                inside, outside = _sides(node.condition, here, self.short)
                left += [(node.condition, here), (node.body, inside), (node.other, outside)]
            else:
                left += [(part, here) for part in node.parts]

    def _loops(self, region: Region) -> Region:
        """Return the region of the loops that read it: a row is not cut into loops that are short.

        Functions of the points that fill no vector are computed one by one.
        """
        row = region.get(self.short, ()) if self.short else ()
        if all(fills_vectors(high - low) for low, high in row):
            return region
        return {axis: found for axis, found in region.items() if axis is not self.short}


def _key(region: Region) -> str:
    return ";".join(f"{axis.name}{region[axis]}" for axis in sorted(region, key=lambda a: a.name))


def _points(region: Region, domain: int) -> int:
    """Return the number of points of a region."""
    share = math.prod(
        sum(high - low for low, high in found) / max(1, estimate(axis.size))
        for axis, found in region.items()
    )
    return round(domain * share)


def _sides(condition: Expr, region: Region, short: Axis | None) -> tuple[Region, Region]:
    """Return the parts of a region where a condition holds, and where it does not.

    A part that is not known is the whole region. So is each part of an axis that would have too
    short loops, if it is `short`.
    """
    conditions = conjuncts(condition)
    inside, outside = region, region
    for one in conditions:
        inside, outside = _split(one, inside, short)
    return inside, outside if len(conditions) == 1 else region


def _split(condition: Expr, region: Region, short: Axis | None) -> tuple[Region, Region]:
    """Return the same for a condition that is not a conjunction."""
    axes = condition.axes
    if len(axes) != 1:
        return region, region
    (axis,) = axes
    parts, size = ranges(condition, axis), estimate(axis.size)
    if parts is None or (axis is short and len(parts) * SHORTEST > size):
        return region, region
    old = region.get(axis, ((0, size),))
    holds = [(low, high) for low, high, value in parts if value.start]
    fails = [(low, high) for low, high, value in parts if not value.start]
    return {**region, axis: _both(old, holds)}, {**region, axis: _both(old, fails)}


def _both(left: Sequence[tuple[int, int]], right: Sequence[tuple[int, int]]) -> Intervals:
    """Return the ranges that two lists of ranges share, in order."""
    shared = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple(sorted((low, high) for low, high in shared if low < high))
