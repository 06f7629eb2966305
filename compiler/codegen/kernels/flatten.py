"""Rewrites a kernel with addresses instead of logical indices, and with few loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Axis, Index, to_index
from tcdebug.compiler.ir.build import call, index_value
from tcdebug.compiler.ir.expr import (
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    indices,
    loads,
    rewrite,
    walk,
)
from tcdebug.compiler.ir.graph import Buffer, Origin, Pointwise, Reduction, Scan, Scatter
from tcdebug.compiler.ir.operations import SCANS, SORTS
from tcdebug.compiler.schedule.kernel import Kernel


@dataclass(frozen=True)
class FlatNode:
    """A node of a kernel. `kind` is that of a reduction or scan, otherwise empty.

    A load with an empty index reads the current value of another node of the kernel. A load with
    one index reads memory at that offset, in elements.
    """

    name: str
    dtype: torch.dtype
    kind: str
    inside: bool
    address: Index
    body: Expr
    origin: Origin
    into: str = ""
    """The buffer whose memory it overwrites; empty if it has memory of its own."""
    scatters: bool = False
    """Whether its address is data, so that points must run in order."""
    apart: frozenset[Axis] = frozenset()
    """For a scatter, the axes along which different points have different addresses."""
    across: bool = False
    """Whether it is the sum of a column over all outer points, or is computed after all of them."""
    exists: Expr | None = None
    """Where a scan has elements; None if every point has one."""

    @property
    def scans(self) -> bool:
        """Whether it accumulates, and has a value at every point."""
        return self.kind in SCANS

    @property
    def reduces(self) -> bool:
        """Whether it accumulates, and has a value after the inner loops."""
        return bool(self.kind) and not self.scans and not self.across


@dataclass(frozen=True)
class FlatKernel:
    """A kernel over addresses. If it accumulates nothing, its last axis is the inner one."""

    name: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    nodes: tuple[FlatNode, ...]
    stored: frozenset[str]
    step: int = 1
    """The points that a point of the loops stands for, as one of a pair."""

    @property
    def accumulates(self) -> bool:
        """Whether any node is a reduction or a scan."""
        return any(n.kind for n in self.nodes)

    @property
    def scans(self) -> bool:
        """Whether any node is a scan."""
        return any(n.scans for n in self.nodes)

    @property
    def sorts(self) -> bool:
        """Whether any node is a sort, which needs a whole row at once."""
        return any(n.kind in SORTS for n in self.nodes)

    @property
    def columns(self) -> tuple[FlatNode, ...]:
        """The sums of columns, which rows add to."""
        return tuple(n for n in self.nodes if n.across and n.kind)


def flatten(kernel: Kernel, buffers: Mapping[str, Buffer], *, collapse: bool) -> FlatKernel:
    """Return the kernel over addresses. `collapse` merges nested loops over contiguous memory."""
    made = {n.name for n in kernel.nodes}
    nodes = tuple(
        FlatNode(
            n.name,
            n.out.dtype,
            "" if isinstance(n, Pointwise) else n.kind,
            isinstance(n, Reduction) or kernel.is_inner(n),
            _addressed_index(n.out.address(n.index), buffers, made),
            _addressed(n.body, buffers, made),
            n.origin,
            n.into if isinstance(n, Pointwise) else "",
            isinstance(n, Scatter),
            axes_apart(n) if isinstance(n, Scatter) else frozenset(),
            kernel.is_across(n),
            _within(n) if isinstance(n, Scan) and not n.fills_exactly else None,
        )
        for n in kernel.nodes
    )
    flat = FlatKernel(kernel.name, kernel.outer, kernel.inner, nodes, kernel.stored)
    if any(n.scatters for n in nodes):
        return flat
    if collapse:
        flat = _collapsed(flat)
    return flat if flat.accumulates else _last_inside(flat)


def axes_apart(node: Scatter) -> frozenset[Axis]:
    """The axes that alone index a dimension, so that different points have different elements."""
    found: set[Axis] = set()
    for index in node.index:
        atoms = index.direct_atoms
        if len(atoms) == 1 and isinstance(atoms[0], Axis) and index.coefficient(atoms[0]):
            found.add(atoms[0])
    return frozenset(found)


def _within(node: Scan) -> Expr:
    """Return whether a point lies within the buffer."""
    axes = {to_index(a): a.size for a in node.filled}
    tests = (
        call("lt", index_value(place), index_value(size))
        for place, size in zip(node.index, node.out.size, strict=True)
        if axes.get(place) != size
    )
    return reduce(partial(call, "bitwise_and"), tests)


def _addressed_index(index: Index, buffers: Mapping[str, Buffer], made: set[str]) -> Index:
    changed = _addressed(IndexValue(torch.int64, index), buffers, made)
    assert isinstance(changed, IndexValue)
    return changed.index


def _addressed(
    body: Expr,
    buffers: Mapping[str, Buffer],
    made: set[str],
) -> Expr:
    def change(node: Expr) -> Expr:
        if not isinstance(node, Load):
            return node
        if node.buffer in made:
            return Load(node.dtype, node.buffer, ())
        return Load(node.dtype, node.buffer, (buffers[node.buffer].address(node.index),))

    return rewrite(body, change, in_indices=True)


def _last_inside(flat: FlatKernel) -> FlatKernel:
    """Return a kernel that accumulates nothing, with its last axis as the inner one."""
    nodes = tuple(replace(n, inside=True) for n in flat.nodes)
    return FlatKernel(flat.name, flat.outer[:-1], flat.outer[-1:], nodes, flat.stored)


def row_major(axes: Iterable[Axis]) -> Index:
    """Return the position of the current point of some loops, in row-major order."""
    place = ZERO
    for axis in axes:
        place = place * axis.size + to_index(axis)
    return place


def flat_expressions(flat: FlatKernel) -> Iterator[Expr]:
    """Return all expressions of a kernel, including addresses, node by node."""
    for node in flat.nodes:
        yield from walk(IndexValue(torch.int64, node.address))
        yield from walk(node.body)


def flat_indices(flat: FlatKernel) -> Iterator[Index]:
    """Return all addresses and index values of a kernel."""
    for expr in flat_expressions(flat):
        yield from indices(expr)


def _collapsed(flat: FlatKernel) -> FlatKernel:
    outer, inner = list(flat.outer), list(flat.inner)
    nodes = flat.nodes
    for axes in (outer, inner):
        position = len(axes) - 2
        while position >= 0:
            first, second = axes[position], axes[position + 1]
            current = FlatKernel(flat.name, (), (), nodes, frozenset())
            if all(runs_on(index, first, second) for index in flat_indices(current)):
                joined = Axis(second.name, first.size * second.size)
                values: dict[Atom, Index] = {first: ZERO, second: to_index(joined)}
                nodes = tuple(
                    replace(
                        n,
                        address=n.address.substitute(values),
                        body=n.body.substitute(values),
                    )
                    for n in nodes
                )
                axes[position : position + 2] = [joined]
            position -= 1
    return FlatKernel(flat.name, tuple(outer), tuple(inner), nodes, flat.stored)


def loaded_dtypes(nodes: Iterable[FlatNode]) -> set[torch.dtype]:
    """Return the dtypes of what nodes load."""
    return {load.dtype for node in nodes for load in loads(node.body)}


def runs_on(index: Index, first: Axis, second: Axis) -> bool:
    """Whether the index depends on the two axes only through first * size(second) + second."""
    per_first: Index = ZERO
    per_second: Index = ZERO
    for monomial, coefficient in index.terms.items():
        rest = list(monomial)
        for atom in monomial:
            if isinstance(atom, Indirect):
                continue  # its expression is checked separately
            if not all(runs_on(child, first, second) for child in atom.children()):
                return False
        count = rest.count(first) + rest.count(second)
        if count > 1:
            return False
        if count == 0:
            continue
        held = first if first in rest else second
        rest.remove(held)
        if any(first in a_axes or second in a_axes for a_axes in map(_axes, rest)):
            return False
        term = Index({tuple(rest): coefficient})
        if held == first:
            per_first = per_first + term
        else:
            per_second = per_second + term
    return per_first == per_second * second.size


def _axes(atom: Atom) -> frozenset[Axis]:
    return to_index(atom).axes


def reads_apart(node: Guarded, recompute: Mapping[str, FlatNode]) -> bool:
    """Return whether neighbouring points read elements that are not neighbours.

    `recompute` has the nodes that are computed again where they are read. If several such reads
    depend on one comparison of 32 bits, g++ 12 joins them and reads zeros in place of one side.
    """
    left, recomputed = [node.body, node.other], set[str]()
    while left:
        for load in loads(left.pop()):
            steps = (i.coefficient(a) for i in load.index for a in node.condition.axes)
            if any(step is None or step.constant not in (0, 1) for step in steps):
                return True
            computed = None if load.index else recompute.get(load.buffer)
            if computed is not None and computed.name not in recomputed:
                recomputed.add(computed.name)
                left.append(computed.body)
    return False
