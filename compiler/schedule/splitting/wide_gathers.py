"""fuse.wide_gathers: read bfloat16 and float16 through an index from a copy in float32.

No processor gathers elements of 16 bits, so a vector of them is loaded one by one. g++ gives all
vectors of a loop as many elements, which are 32 with a result of 16 bits: indices of 64 bits then
take four registers each. So the operand is converted first, and the result last, in loops of their
own. If the operand is larger than what is read of it, its elements are first moved in their order,
and arithmetic follows in another loop.

Elements of any type are moved from a quotient or remainder, as in `take_along_dim`, since no vector
divides integers of 64 bits, and from rows of few neighbours to a function, as in a pixel shuffle.
All of this is done on CPUs, for loops with arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis, Remainder, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import nearest
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.cost import HEAVY, arithmetic, has_function, itemsize
from tcdebug.compiler.ir.expr import Call, Expr, Load, indices, indirect_atoms, rewrite, walk
from tcdebug.compiler.ir.graph import (
    Buffer,
    Graph,
    Node,
    Pointwise,
    Scatter,
)
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.schedule.splitting.split_reduction import fresh

UNIT = "fuse.wide_gathers"
FEWEST = 4096
"""A second kernel and its memory take longer than fewer elements."""
EXPENSIVE = 8
"""The arithmetic from which a loop that reads through indices is vectorized."""
SHORTEST_RUN = 16
"""The fewest neighbours that fill a vector of floats."""
UNROLLED = 4
"""Rows of so few elements are steps of the loop around them (codegen/kernels/unroll.py)."""
IN_CACHE = 1 << 20
"""Half of the second level of the cache, in bytes."""
LARGE = 0.25
"""The largest operand that is converted if one element is read for each result, relative to it."""


def widen_gathers(graph: Graph, gate: Gate) -> tuple[Graph, frozenset[str]]:
    """Return the graph with such copies, and the names of the values that stay in memory."""
    buffers, nodes = graph.buffers(), list[Node]()
    taken = {node.name for node in graph.nodes} | buffers.keys()
    in_memory: set[str] = set()
    for node in graph.nodes:
        read = _gathered(node) if isinstance(node, Pointwise) else []
        if not isinstance(node, Pointwise) or not read or not gate.allows(UNIT, node.name):
            nodes.append(node)
            continue
        sources = {load.buffer: buffers[load.buffer] for load in read}
        if not _are_small(node, read, list(sources.values())):
            moved = {
                load.key: _moved(load, node, fresh(f"{node.name}_read", taken)) for load in read
            }
            in_memory |= {part.name for part in moved.values()}
            nodes += (*moved.values(), _reading_moved(node, moved))
            continue
        copies = {n: _copy(s, node, fresh(f"{node.name}_wide", taken)) for n, s in sources.items()}
        changed = _reading(node, copies)
        nodes += copies.values()
        in_memory |= {copy.name for copy in copies.values()}
        if isinstance(changed.body, Call) and changed.body.name == "cast" and _is_float(changed):
            wide = _with_float(changed, fresh(f"{node.name}_float", taken))
            value = Load(torch.float32, wide.name, wide.index)
            changed = replace(node, body=cast(value, node.out.dtype))
            nodes.append(wide)
            in_memory.add(wide.name)
        nodes.append(changed)
    return replace(graph, nodes=tuple(nodes)), frozenset(in_memory)


def _gathered(node: Pointwise) -> list[Load]:
    """Return the elements of a half type that a node reads through an index in vectors."""
    axis, count = nearest(node.out.address(node.index), node.axes), node.out.numel.constant
    if isinstance(node, Scatter) or node.into or node.out.device.type != "cpu" or axis is None:
        return []
    if count is None or count < FEWEST or arithmetic(node.body) < EXPENSIVE:
        return []
    loads = [load for load in walk(node.body) if isinstance(load, Load)]
    read = [load for load in loads if load.dtype in HALVES or _divides(load)]
    gathered = [load for load in read if _is_gathered(load, axis)]
    size = count * itemsize(node.out.dtype)
    return gathered or [e for e in loads if has_function(node.body) and _is_cut(e, axis, size)]


def _are_small(node: Pointwise, read: Sequence[Load], sources: Sequence[Buffer]) -> bool:
    """Return whether converting operands takes less time than moving what is read of them."""
    if any(_divides(load) or not any(map(indirect_atoms, load.index)) for load in read):
        return False
    count = node.out.numel.constant or 0
    most = count * (len(read) if len(read) > 1 else LARGE)
    sizes = [source.numel.constant for source in sources]
    return None not in sizes and sum(n or 0 for n in sizes) <= most


def _moved(load: Load, node: Pointwise, name: str) -> Pointwise:
    """Return a node that stores the elements that another one reads, in the order of its result."""
    size = node.out.size
    out = Buffer(name, load.dtype, size, node.out.stride, node.out.device)
    return replace(node, out=out, body=load)


def _reading_moved(node: Pointwise, moved: Mapping[str, Pointwise]) -> Pointwise:
    def change(expr: Expr) -> Expr:
        part = moved.get(expr.key)
        return expr if part is None else Load(expr.dtype, part.name, part.index)

    return replace(node, body=rewrite(node.body, change))


def _is_gathered(load: Load, axis: Axis) -> bool:
    atoms = [atom for index in indices(load) for atom in indirect_atoms(index)]
    return any(axis in atom.expr.axes for atom in atoms)


def _is_cut(load: Load, axis: Axis, size: int) -> bool:
    """Return whether a loop over an axis is cut into rows of few neighbours of a load.

    Rows of 2 to 4 are steps of the loop around them (codegen/kernels/unroll.py), which costs less
    than a result of so many bytes that does not fit in the cache.
    """
    shortest = UNROLLED + 1 if size > IN_CACHE else 1
    return any(
        isinstance(atom, Remainder)
        and axis in atom.numerator.axes
        and shortest <= (atom.denominator.constant or 0) < SHORTEST_RUN
        for index in load.index
        for atom in index.atoms
    )


def _divides(load: Load) -> bool:
    """Return whether an index is a quotient or remainder of data, which is not vectorized.

    A loop over a remainder of its own place is cut into rows instead.
    """
    atoms = [atom for index in indices(load) for atom in indirect_atoms(index)]
    return any(
        isinstance(e, Call)
        and e.name in HEAVY
        and not e.dtype.is_floating_point
        and any(isinstance(part, Load) for part in walk(e))
        for atom in atoms
        for e in walk(atom.expr)
    )


def _copy(source: Buffer, node: Pointwise, name: str) -> Pointwise:
    """Return a node that stores an operand in float32."""
    size = source.size
    out = Buffer.contiguous(name, torch.float32, size, source.device)
    dims = [Axis(f"i{k}", n) for k, n in enumerate(size)]
    where = tuple(ZERO if a.size == 1 else to_index(a) for a in dims)
    body = cast(Load(source.dtype, source.name, where), torch.float32)
    return Pointwise(out, tuple(a for a in dims if a.size != 1), where, body, node.origin)


def _reading(node: Pointwise, copies: Mapping[str, Pointwise]) -> Pointwise:
    """Return a node that reads copies. A conversion of their elements to float32 is none."""

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or expr.name != "cast" or expr.dtype != torch.float32:
            return expr
        (read,) = expr.args
        if isinstance(read, Load) and read.buffer in copies:
            return Load(torch.float32, copies[read.buffer].name, read.index)
        return expr

    return replace(node, body=rewrite(node.body, change))


def _is_float(node: Pointwise) -> bool:
    """Return whether the value of a node is a float that is rounded last."""
    assert isinstance(node.body, Call)
    return node.out.dtype in HALVES and node.body.args[0].dtype == torch.float32


def _with_float(node: Pointwise, name: str) -> Pointwise:
    """Return the node without its last rounding."""
    assert isinstance(node.body, Call)
    return replace(
        node, out=replace(node.out, name=name, dtype=torch.float32), body=node.body.args[0]
    )
