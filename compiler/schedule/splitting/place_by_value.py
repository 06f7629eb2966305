"""fuse.place_by_value: find the place of an extreme by comparing with the extreme.

One sweep that keeps the best value and its place takes a branch per element, which g++ does not
vectorize. Two sweeps are vectorized: one for the extreme, and one for the first place that holds
it, which is a minimum of places. A maximum beside an argmax shares the first sweep. This is done on
CPUs, where rows stay in the cache, if an element is read directly and its row is contiguous.

On a GPU this is done for the few long rows that `fuse.split_reduction` divides among programs, if
their elements are read and not computed. Both sweeps are divided. Reading a row twice takes less
time than one program takes for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import ZERO, Atom, Index, product, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, Indirect, Load, indices, walk
from tcdebug.compiler.ir.graph import Buffer, Graph, Node, Reduction
from tcdebug.compiler.ir.operations import FLOATS, INTEGERS
from tcdebug.compiler.schedule.splitting.pieces import count_of_pieces, reads_across
from tcdebug.compiler.schedule.splitting.split_reduction import DEVICES, fresh

UNIT = "fuse.place_by_value"
EXTREMES = {"argmax": "max", "argmin": "min"}
EXACT = ("cast", "neg", "abs")
"""Operations that have the same result in every kernel."""
PIECES = 16
"""On a GPU, rows that are divided into fewer pieces are read once."""
SHORT = 32
"""Rows with fewer elements, two vectors of floats, stay as they are."""
NOWHERE = 2**63 - 1


def places_by_value(graph: Graph, gate: Gate) -> Graph:
    """Return the graph with each argmax and argmin over long rows found by value."""
    buffers = graph.buffers()
    extremes = dict(_extremes(graph))
    nodes: list[Node] = []
    names = {node.name for node in graph.nodes}
    for node in graph.nodes:
        if not isinstance(node, Reduction) or not _pays(node, buffers):
            nodes.append(node)
            continue
        if not gate.allows(UNIT, node.name):
            nodes.append(node)
            continue
        kind = EXTREMES[node.kind]
        known = extremes.get(_key(node, kind))
        if known is None or known.name not in {n.name for n in nodes}:
            known = _extreme(node, kind, fresh(f"{node.name}_{kind}", names))
            nodes.append(known)
        nodes.append(_place(node, known))
    return replace(graph, nodes=tuple(nodes))


def _extremes(graph: Graph) -> Iterator[tuple[tuple[str, ...], Reduction]]:
    for node in graph.nodes:
        if isinstance(node, Reduction) and node.out.dtype == node.body.dtype:
            yield _key(node, node.kind), node


def _key(node: Reduction, kind: str) -> tuple[str, ...]:
    """Return equal for reductions of this kind that have the same elements."""
    axes = (f"{a.name}:{a.size!r}" for a in (*node.axes, *node.reduced))
    return kind, node.body.key, str(len(node.axes)), *axes


def _pays(node: Reduction, buffers: Mapping[str, Buffer]) -> bool:
    if node.kind not in EXTREMES or node.body.dtype not in (*FLOATS, *INTEGERS):
        return False
    device, across = node.out.device.type, reads_across(node, buffers)
    if device != "cpu":
        read = all(e.name in EXACT for e in walk(node.body) if isinstance(e, Call))
        return device in DEVICES and read and count_of_pieces(node, across=across) >= PIECES
    if across or estimate(product(a.size for a in node.reduced)) < SHORT:
        return False
    return not any(isinstance(e, Guarded) or _indirect(e) for e in walk(node.body))


def _indirect(expr: Expr) -> bool:
    return any(isinstance(atom, Indirect) for index in indices(expr) for atom in index.atoms)


def _extreme(node: Reduction, kind: str, name: str) -> Reduction:
    """Return the largest or smallest element of each row."""
    size = tuple(a.size for a in node.axes)
    strides = tuple(product(size[k + 1 :]) for k in range(len(size)))
    out = Buffer(name, node.body.dtype, size, strides, node.out.device)
    return replace(node, out=out, kind=kind, index=tuple(to_index(a) for a in node.axes))


def _place(node: Reduction, extreme: Reduction) -> Reduction:
    """Return the first place in each row that holds the extreme, or a NaN."""
    where: dict[Atom, Index] = {
        a: to_index(b) for a, b in zip(extreme.axes, node.axes, strict=True)
    }
    held = Load(extreme.out.dtype, extreme.name, tuple(i.substitute(where) for i in extreme.index))
    found = call("eq", node.body, held)
    if node.body.dtype in FLOATS:
        found = call("bitwise_or", found, call("ne", node.body, node.body))
    position: Index = ZERO
    for axis in node.reduced:
        position = position * axis.size + to_index(axis)
    nowhere = constant(torch.int64, NOWHERE)
    return replace(node, kind="min", body=call("where", found, index_value(position), nowhere))
