"""codegen.unroll: writes the points of a short innermost axis one after the other.

Complex numbers as pairs, interleaved rotary embeddings and points in space have two to four
elements in their last dimension. A loop over so few points fills no vector. The loop around it
does, and g++ joins neighbouring stores of one step to whole vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, flat_indices
from tcdebug.compiler.ir.arithmetic.index import Axis, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Expr, Guarded, Load, rewrite, walk
from tcdebug.compiler.ir.linear_parts import linear
from tcdebug.compiler.schedule.inlining.inlining_cost import JOINED

MOST_POINTS = 4
"""The most points of an axis that is unrolled. g++ joins up to four neighbouring stores."""
FEWEST_STEPS = 8
"""The fewest points of the loop around it. Fewer fill no vector either."""
FARTHEST = 8
"""The largest stride, in elements, of that loop. Beyond it, each step reads a cache line alone."""
LARGEST = 1200
"""The most expression nodes of all points together."""


@dataclass(frozen=True)
class Unrolled:
    """A kernel without its innermost axis."""

    kernel: FlatKernel
    names: Mapping[str, str]
    """Node of the kernel -> the node of which it is one point."""


def unrolled(kernel: FlatKernel) -> Unrolled | None:
    """Return the kernel with its innermost axis unrolled; None if that does not pay."""
    if kernel.accumulates or len(kernel.inner) != 1 or not kernel.outer:
        return None
    axis, around = kernel.inner[0], kernel.outer[-1]
    count = axis.size.constant
    if count is None or not 2 <= count <= MOST_POINTS or estimate(around.size) < FEWEST_STEPS:
        return None
    if any(n.scatters for n in kernel.nodes) or not _is_near(kernel, around):
        return None
    if count * sum(1 for n in kernel.nodes for _ in walk(n.body)) > LARGEST:
        return None
    points = [
        (node, place, at_point(node, axis, place))
        for place in range(count)
        for node in kernel.nodes
    ]
    made = {n.name for n in kernel.nodes}
    nodes = tuple(of_point(point, place, made) for _, place, point in points)
    names = {new.name: old.name for new, (old, _, _) in zip(nodes, points, strict=True)}
    stored = frozenset(new for new, old in names.items() if old in kernel.stored)
    flat = FlatKernel(kernel.name, kernel.outer[:-1], (around,), nodes, stored, count)
    return Unrolled(flat, names)


def unrolled_choices(kernel: FlatKernel) -> Unrolled | None:
    """Return the kernel with its innermost axis unrolled if that decides choices, else None.

    `torch.stack` along a new last axis computes all operands at each point, and chooses one.
    """
    choices = _choices(kernel)
    found = unrolled(kernel) if choices else None
    if found is None or found.kernel.step not in JOINED:
        return None
    return found if _choices(found.kernel) < choices else None


def _choices(kernel: FlatKernel) -> int:
    return sum(isinstance(e, Guarded) for n in kernel.nodes for e in walk(n.body))


def _is_near(kernel: FlatKernel, axis: Axis) -> bool:
    """Return whether all accesses of neighbouring steps are close to each other."""
    for index in flat_indices(kernel):
        stride = index.coefficient(axis)
        if stride is None or stride.constant is None or abs(stride.constant) > FARTHEST:
            return False
    return True


def at_point(node: FlatNode, axis: Axis, place: int) -> FlatNode:
    """Return a node at a point of an axis, without the choices that the point decides."""
    body = rewrite(node.body, _decided(axis, place)).substitute({axis: to_index(place)})
    return replace(node, address=node.address.substitute({axis: to_index(place)}), body=body)


def _decided(axis: Axis, place: int) -> Callable[[Expr], Expr]:
    def change(node: Expr) -> Expr:
        if isinstance(node, Guarded):
            known = linear(node.condition, axis, place, place + 1)
            if known is not None and not known.slope:
                return node.body if known.start else node.other
        return node

    return change


def of_point(node: FlatNode, place: int, made: set[str]) -> FlatNode:
    """Return a node that is named by its point, and reads the same point of others."""

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and not expr.index and expr.buffer in made:
            return replace(expr, buffer=point_name(expr.buffer, place))
        return expr

    body = rewrite(node.body, change, in_indices=True)
    return replace(node, name=point_name(node.name, place), body=body)


def point_name(name: str, place: int) -> str:
    """Return the name of a point of a node."""
    return f"{name}_at{place}"
