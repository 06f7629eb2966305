"""codegen.pairs: loads and stores neighbouring bfloat16 numbers of a row two at a time.

Two numbers are an integer of 32 bits. A shift and a mask make two floats of it, and a shift and a
choice of bits join two results. Without pairs, g++ widens vectors of 16-bit elements and narrows
the results, which takes twice as many instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.halves.half_values import NARROW, as_float
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.unroll import point_name
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, to_index
from tcdebug.compiler.ir.build import call
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, IndexValue, Load, rewrite, walk
from tcdebug.compiler.ir.operations import FLOATS

HALF = torch.bfloat16
PAIR = torch.uint32
"""The dtype of two numbers as one integer. No tensor of a kernel has it."""
PARTS = ("first_of_pair", "second_of_pair")
JOINED = "joined_to_pair"
SHORTEST = 64
"""The fewest points of a row: two vectors of pairs."""
LARGEST = 400
"""The most expression nodes of both points together."""
COMBINES = {"sum": "add", "prod": "mul"}
"""Kind of a reduction along a row -> the operation that combines the two points of a step."""
EXTREMES = {"max": "maximum", "min": "minimum"}
"""Kind of a reduction -> the operation that combines those of all first and all second points."""


@dataclass(frozen=True)
class Paired:
    """A kernel whose steps along one axis are two points."""

    kernel: FlatKernel
    names: Mapping[str, str]
    """Node that is stored -> the node whose memory it is stored in."""
    axis: Axis


def paired_along_rows(kernel: FlatKernel) -> Paired | None:
    """Return the kernel with steps of two points of a row; None if it has no rows of bfloat16."""
    if not kernel.inner or (kernel.accumulates and len(kernel.inner) > 1):
        return None
    kinds = {n.kind for n in kernel.nodes if n.kind}
    return _paired(kernel, kernel.inner[-1]) if kinds <= {*COMBINES, *EXTREMES} else None


def paired_across_rows(kernel: FlatKernel, lane: Axis) -> Paired | None:
    """Return the kernel with two neighbours of an outer axis in a lane; None if that cannot be."""
    return _paired(kernel, lane)


def _paired(kernel: FlatKernel, axis: Axis) -> Paired | None:
    size = axis.size.constant
    if size is None or size < SHORTEST or size % 2:
        return None
    pairs = _Pairs(kernel, axis, size)
    if not all(map(pairs.supports, kernel.nodes)):
        return None
    bodies = [expr for n in kernel.nodes if n.inside for expr in walk(n.body)]
    if 2 * len(bodies) > LARGEST or not any(map(_computes, bodies)):
        return None
    nodes = tuple(new for node in kernel.nodes for new in pairs.nodes_of(node))
    made = {n.name: n.dtype for n in nodes}
    loads = [(n, e) for n in nodes for e in walk(n.body) if isinstance(e, Load)]
    if any(_is_raw(e, made) or (n.inside and _is_alone(e, pairs.axis)) for n, e in loads):
        return None
    if PAIR not in {e.dtype for _, e in loads}:
        return None
    stored = {n.name for n in nodes if n.name in pairs.names or n.name in kernel.stored}
    outer, inner = (
        tuple(pairs.axis if a == axis else a for a in axes) for axes in (kernel.outer, kernel.inner)
    )
    flat = FlatKernel(kernel.name, outer, inner, nodes, frozenset(stored), 2 * kernel.step)
    return Paired(flat, pairs.names, pairs.axis)


def _computes(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name not in ("cast", NARROW)


def _is_raw(load: Load, made: Mapping[str, torch.dtype]) -> bool:
    """Return whether a node of the kernel that is a float now is read as a number of 16 bits."""
    return load.dtype == HALF and made.get(load.buffer) == torch.float32


def _is_alone(load: Load, axis: Axis) -> bool:
    """Return whether a load reads one element at a point of the axis."""
    return bool(load.index) and load.dtype != PAIR and axis in load.axes


class _Pairs:
    """Makes the nodes of a kernel with steps of two points along an axis."""

    def __init__(self, kernel: FlatKernel, axis: Axis, size: int) -> None:
        self.old = axis
        self.axis = Axis(axis.name, to_index(size // 2))
        self.names: dict[str, str] = {}
        """Node that is stored -> the node whose memory it is stored in."""
        self._start = to_index(self.axis) * 2
        self._is_row = axis in kernel.inner
        self._points = {n.name for n in kernel.nodes if self._has_points(n)}
        self._stored = kernel.stored
        self._done: tuple[dict[str, Expr], dict[str, Expr]] = {}, {}

    def _has_points(self, node: FlatNode) -> bool:
        """Return whether a node has a value at each point of the axis."""
        return not self._is_row or (node.inside and not node.kind)

    def _stride(self, address: Index) -> int | None:
        stride = address.coefficient(self.old)
        return None if stride is None else stride.constant

    def supports(self, node: FlatNode) -> bool:
        """Return whether a node accesses one place in all steps, or neighbours in bfloat16.

        What is done once per row may access other memory.
        """
        if node.scatters or node.scans or node.across or (node.into and node.kind):
            return False
        for expr in walk(node.body):
            if isinstance(expr, Guarded | IndexValue) and self.old in expr.axes:
                return False
            if isinstance(expr, Load) and expr.index and node.inside:
                near = self._stride(expr.index[0]) == 1 and expr.dtype == HALF
                if not near and self.old in expr.axes:
                    return False
        if not node.inside:
            return not node.into
        if node.kind:
            return node.body.dtype in FLOATS
        is_pair = node.dtype == HALF and self._stride(node.address) == 1
        return is_pair or node.name not in self._stored

    def nodes_of(self, node: FlatNode) -> list[FlatNode]:
        """Return the nodes that stand for one: two points, and what combines or stores them."""
        if self._has_points(node):
            return self._stored_points(node)
        if node.kind in COMBINES:
            bodies = [self._at(node.body, place) for place in range(2)]
            return [replace(node, body=call(COMBINES[node.kind], *bodies))]
        if node.kind:
            points = self._two(node, node.body)
            parts = [Load(node.dtype, point.name, ()) for point in points]
            both = call(EXTREMES[node.kind], *parts)
            return [*points, replace(node, kind="", inside=False, body=both)]
        return [node]

    def _two(self, node: FlatNode, body: Expr) -> list[FlatNode]:
        """Return the two points of a node with a body."""
        return [
            replace(
                node,
                name=point_name(node.name, place),
                dtype=body.dtype if not node.kind else node.dtype,
                address=node.address.substitute({self.old: self._start + to_index(place)}),
                body=self._at(body, place),
                into="",
            )
            for place in range(2)
        ]

    def _stored_points(self, node: FlatNode) -> list[FlatNode]:
        if node.name not in self._stored:
            return self._two(node, node.body)
        if node.dtype != HALF or node.kind or self._stride(node.address) != 1:
            points = self._two(node, node.body)
            self.names |= {point.name: node.name for point in points}
            return points
        points = self._two(node, as_float(node.body))
        name = f"{node.name}_pair"
        self.names[name] = node.name
        address = node.address.substitute({self.old: self._start})
        joined = Call(PAIR, JOINED, tuple(Load(p.dtype, p.name, ()) for p in points))
        return [*points, replace(node, name=name, dtype=PAIR, address=address, body=joined)]

    def _at(self, body: Expr, place: int) -> Expr:
        """Return an expression at a point of a step."""
        changed = rewrite(body, self._changed(place), self._done[place], in_indices=True)
        return changed.substitute({self.old: self._start + to_index(place)})

    def _changed(self, place: int) -> Callable[[Expr], Expr]:
        def change(expr: Expr) -> Expr:
            match expr:
                case Call(name="cast", args=(Load(index=(index,)) as load,)) if self._is_near(load):
                    if expr.dtype != torch.float32:
                        return expr
                    pair = Load(PAIR, load.buffer, (index.substitute({self.old: self._start}),))
                    return Call(torch.float32, PARTS[place], (pair,))
                case Load(index=()) if expr.buffer in self._points:
                    return replace(expr, buffer=point_name(expr.buffer, place))
            return expr

        return change

    def _is_near(self, load: Load) -> bool:
        return load.dtype == HALF and self._stride(load.index[0]) == 1
