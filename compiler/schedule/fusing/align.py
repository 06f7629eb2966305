"""Rewrites two groups of loop nodes over the same axes.

Loops over (64, 64) and over (2, 32, 64) visit the same points; if the first axis is split, they are
the same loops. `align` finds common axes for both groups by matching their accesses to a common
buffer, or else by splitting axes in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcdebug.compiler.ir.arithmetic.index import (
    ONE,
    ZERO,
    Atom,
    Axis,
    Index,
    exact_quotient,
    product,
    to_index,
)
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.graph import LoopNode, Pointwise, Reduction, reads

AxisMap = dict[Axis, Index]


@dataclass(frozen=True)
class Loops:
    """Loop nodes over common axes. `inner` is empty if all nodes are pointwise over `outer`."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    nodes: tuple[LoopNode, ...]

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The outer axes, then the inner axes."""
        return self.outer + self.inner

    def is_across(self, node: LoopNode) -> bool:
        """Whether a node has a value for each point of the inner axes alone (`column_sums.py`)."""
        return bool(self.outer and self.inner) and not set(node.axes) & set(self.outer)


def loops_of(node: LoopNode) -> Loops:
    """Return the loops of a single node."""
    if isinstance(node, Pointwise):
        return Loops(node.axes, (), (node,))
    return Loops(node.axes, node.reduced, (node,))


def sweeps(loops: Loops) -> int:
    """Return the number of times that the kernel loops over the inner axes."""
    return 1 + max(sweep_numbers(loops).values(), default=0)


def sweep_numbers(loops: Loops) -> dict[str, int]:
    """Node inside the inner axes -> the first sweep in which all of its operands are known."""
    number: dict[str, int] = {}
    reduces: set[str] = set()
    for node in (n for n in loops.nodes if not loops.is_across(n)):
        number[node.name] = max(
            (number[r] + (r in reduces) for r in reads(node) if r in number), default=0
        )
        if isinstance(node, Reduction):
            reduces.add(node.name)
    inside = {
        n.name
        for n in loops.nodes
        if not isinstance(n, Pointwise) or len(n.axes) > len(loops.outer)
    }
    return {name: value for name, value in number.items() if name in inside}


def align(first: Loops, second: Loops) -> Iterator[Loops]:
    """Yield the ways to write both groups over the same axes, the most direct one first.

    Each way computes the same values. The caller must check whether the groups can run in one loop
    nest.
    """
    if first.inner and second.inner:
        if product(a.size for a in first.outer) == product(a.size for a in second.outer):
            yield from _both_reduce(first, second)
        return
    if second.inner:
        yield from _onto(second, first, host_first=False)
    else:
        yield from _onto(first, second, host_first=True)


def _onto(host: Loops, guest: Loops, *, host_first: bool) -> Iterator[Loops]:
    """Yield the guest, which has no inner axes, written over the axes of the host."""
    domain = product(a.size for a in guest.axes)
    levels = [host.axes] if not host.inner else [host.axes, host.outer]
    for level in levels:
        if product(a.size for a in level) != domain:
            continue
        for order in _orders(host, guest, level):
            refined = refine(level, order)
            if refined is None:
                continue
            rest = () if len(level) == len(host.axes) else host.inner
            yield _merge(host, guest, refined, rest, host_first=host_first)


def _both_reduce(first: Loops, second: Loops) -> Iterator[Loops]:
    outer = refine(first.outer, second.outer)
    inner = refine(first.inner, second.inner)
    if outer is None or inner is None:
        return
    fresh_outer, first_outer, second_outer = outer
    fresh_inner, first_inner, second_inner = inner
    fresh_inner, rename = _renamed(fresh_inner, len(fresh_outer))
    first_map = {**first_outer, **_compose(first_inner, rename)}
    second_map = {**second_outer, **_compose(second_inner, rename)}
    nodes = moved(first, first_map, fresh_outer, fresh_inner)
    nodes += moved(second, second_map, fresh_outer, fresh_inner)
    yield Loops(fresh_outer, fresh_inner, nodes)


def _renamed(axes: tuple[Axis, ...], start: int) -> tuple[tuple[Axis, ...], dict[Atom, Index]]:
    fresh = tuple(Axis(f"x{start + k}", a.size) for k, a in enumerate(axes))
    return fresh, {a: to_index(f) for a, f in zip(axes, fresh, strict=True)}


def _compose(mapping: AxisMap, rename: dict[Atom, Index]) -> AxisMap:
    return {axis: where.substitute(rename) for axis, where in mapping.items()}


def _orders(host: Loops, guest: Loops, level: tuple[Axis, ...]) -> Iterator[tuple[Axis, ...]]:
    """Orders of the guest's axes that may match the host's: by common buffers, then as given."""
    seen: set[tuple[str, ...]] = set()
    for matched in _matches(host, guest):
        order = tuple(matched[a] for a in level if a in matched)
        if len(order) == len(guest.axes) and len(set(order)) == len(order):
            key = tuple(a.name for a in order)
            if key not in seen:
                seen.add(key)
                yield order
    if tuple(a.name for a in guest.axes) not in seen:
        yield guest.axes


def _matches(host: Loops, guest: Loops) -> Iterator[dict[Axis, Axis]]:
    """For each buffer that both access: host axis -> guest axis, by dimension of the buffer."""
    theirs = dict(_touches(guest.nodes))
    for name, place in _touches(host.nodes):
        other = theirs.get(name)
        if other is None or len(other) != len(place):
            continue
        matched: dict[Axis, Axis] = {}
        for mine, its in zip(place, other, strict=True):
            a, b = _single_axis(mine), _single_axis(its)
            if a is not None and b is not None and a.size == b.size:
                matched.setdefault(a, b)
        if matched:
            yield matched


def _touches(nodes: Iterable[LoopNode]) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for node in nodes:
        yield node.name, node.index
        for load in loads(node.body):
            yield load.buffer, load.index


def _single_axis(index: Index) -> Axis | None:
    atoms = index.direct_atoms
    if len(atoms) == 1 and isinstance(atoms[0], Axis) and index == to_index(atoms[0]):
        return atoms[0]
    return None


def refine(
    left: Sequence[Axis], right: Sequence[Axis]
) -> tuple[tuple[Axis, ...], AxisMap, AxisMap] | None:
    """Return the common refinement of two lists of axes, and both lists written in its axes.

    Both visit their points in row-major order: (6,) and (2, 3) refine to (2, 3). Returns None if
    sizes do not divide, as for (4, 6) and (6, 4).
    """
    if tuple(a.size for a in left) == tuple(a.size for a in right):
        fresh = tuple(Axis(f"x{k}", a.size) for k, a in enumerate(left))
        where = [to_index(a) for a in fresh]
        return fresh, dict(zip(left, where, strict=True)), dict(zip(right, where, strict=True))
    sizes: list[Index] = []
    left_parts: list[list[int]] = [[] for _ in left]
    right_parts: list[list[int]] = [[] for _ in right]
    i, j = len(left) - 1, len(right) - 1
    a = left[i].size if left else ONE
    b = right[j].size if right else ONE
    while i >= 0 and j >= 0:
        step, a_rest, b_rest = _common_factor(a, b)
        if step is None:
            return None
        left_parts[i].append(len(sizes))
        right_parts[j].append(len(sizes))
        sizes.append(step)
        i, a = _advance(left, i, a_rest)
        j, b = _advance(right, j, b_rest)
    if i >= 0 or j >= 0:
        return None
    count = len(sizes)
    fresh = tuple(Axis(f"x{k}", sizes[count - 1 - k]) for k in range(count))
    return (
        fresh,
        _written(left, left_parts, fresh),
        _written(right, right_parts, fresh),
    )


def _common_factor(a: Index, b: Index) -> tuple[Index | None, Index, Index]:
    """Return the largest size that divides both, if it is one of them, and the rest of each."""
    if a == b:
        return a, ONE, ONE
    quotient = exact_quotient(a, b)
    if quotient is not None and b != 1 and b != 0:
        return b, quotient, ONE
    quotient = exact_quotient(b, a)
    if quotient is not None and a != 1 and a != 0:
        return a, ONE, quotient
    return None, ONE, ONE


def _advance(axes: Sequence[Axis], position: int, rest: Index) -> tuple[int, Index]:
    if rest != 1:
        return position, rest
    return position - 1, axes[position - 1].size if position > 0 else ONE


def _written(
    axes: Sequence[Axis], parts: Sequence[Sequence[int]], fresh: Sequence[Axis]
) -> AxisMap:
    """Each axis as a sum over the new axes that it was split into, innermost first."""
    result: AxisMap = {}
    for axis, pieces in zip(axes, parts, strict=True):
        value, scale = ZERO, ONE
        for piece in pieces:
            part = fresh[len(fresh) - 1 - piece]
            value = value + to_index(part) * scale
            scale = scale * part.size
        result[axis] = value
    return result


def _merge(
    host: Loops,
    guest: Loops,
    refined: tuple[tuple[Axis, ...], AxisMap, AxisMap],
    rest: tuple[Axis, ...],
    *,
    host_first: bool,
) -> Loops:
    """Both groups over refined axes. `rest` are inner axes of the host that the guest lacks."""
    fresh, host_map, guest_map = refined
    inner_fresh, rename = _renamed(rest, len(fresh))
    host_map = {**host_map, **{a: rename[a] for a in rest}}
    outer_axes = {x for a in host.outer for x in host_map[a].axes}
    outer = tuple(a for a in fresh if a in outer_axes)
    inner = (*(a for a in fresh if a not in outer_axes), *inner_fresh)
    moved_host = moved(host, host_map, outer, inner)
    moved_guest = moved(guest, guest_map, fresh, ())
    nodes = moved_host + moved_guest if host_first else moved_guest + moved_host
    return Loops(outer, inner, nodes)


def moved(
    loops: Loops,
    mapping: Mapping[Axis, Index] | Mapping[Atom, Index],
    outer: tuple[Axis, ...],
    inner: tuple[Axis, ...],
) -> tuple[LoopNode, ...]:
    """Return the nodes rewritten over other axes. Other parts of an index may be mapped, too."""
    values: dict[Atom, Index] = dict(mapping.items())
    nodes: list[LoopNode] = []
    for node in loops.nodes:
        index = tuple(i.substitute(values) for i in node.index)
        body = node.body.substitute(values)
        across = loops.is_across(node)
        axes, over = (inner, outer) if across else (outer, inner)
        if isinstance(node, Pointwise):
            inside = len(node.axes) > len(loops.outer) or not loops.inner
            axes = outer + inner if inside and not across else axes
            nodes.append(replace(node, axes=axes, index=index, body=body))
        else:
            nodes.append(replace(node, axes=axes, reduced=over, index=index, body=body))
    return tuple(nodes)
