"""fuse.split_reduction: a reduction to few elements of many, in pieces that programs share.

Loop IR in, loop IR out. A GPU runs hundreds of programs at a time: a reduction with fewer rows is
cut along its longest inner axis, the pieces reduce to a partial result each, and a second
reduction combines those. Legal for what may be combined in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from tcdebug.compiler.gate import Gate
from tcdebug.compiler.ir.build import call, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, Load, loads
from tcdebug.compiler.ir.graph import Buffer, Graph, Node, Reduction
from tcdebug.compiler.ir.index import ZERO, Atom, Axis, Index, product, to_index
from tcdebug.compiler.ir.operations import FLOATS
from tcdebug.compiler.ir.size_estimate import estimate

UNIT = "fuse.split_reduction"
DEVICES = ("cuda",)
KINDS = ("sum", "prod", "max", "min")
PROGRAMS = 132 * 8
"""Programs that keep a large GPU busy."""
PIECE = 4096
"""Elements that a program should have to combine at least."""
COLUMNS = 64
"""Neighbouring results that one program computes where the inner loops go across memory."""


def split_reductions(graph: Graph, gate: Gate) -> Graph:
    """The graph with the reductions split of which a GPU would run too few programs."""
    nodes: list[Node] = []
    buffers = graph.buffers()
    taken = {node.name for node in graph.nodes}
    for node in graph.nodes:
        pieces = _pieces(node, buffers) if isinstance(node, Reduction) else 1
        if pieces > 1 and gate.allows(UNIT, node.name):
            assert isinstance(node, Reduction)
            name = f"{node.name}_piece"
            while name in taken:
                name += "_"
            taken.add(name)
            nodes += _split(node, pieces, name)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _pieces(node: Reduction, buffers: Mapping[str, Buffer]) -> int:
    """Into how many pieces to cut; 1 leaves the node as it is."""
    if node.out.device.type not in DEVICES or node.kind not in KINDS:
        return 1
    rows = estimate(product(a.size for a in node.axes))
    inner = estimate(product(a.size for a in node.reduced))
    longest = estimate(_longest(node).size)
    together = min(COLUMNS, rows) if _across(node, buffers) else 1
    programs = max(1, rows // together)
    wanted = min(PROGRAMS // programs, inner * together // PIECE, longest // 2)
    if wanted < 4 or rows >= PROGRAMS * 8:
        return 1
    return _divisor(_longest(node).size.constant, wanted)


def _across(node: Reduction, buffers: Mapping[str, Buffer]) -> bool:
    """Whether neighbouring results are computed from neighbours in memory."""
    along = 0
    for load in loads(node.body):
        address = ZERO
        for where, stride in zip(load.index, buffers[load.buffer].stride, strict=True):
            address = address + where * stride
        along += sum(address.coefficient(a) == 1 for a in node.axes)
        along -= sum(address.coefficient(a) == 1 for a in node.reduced)
    return along > 0


def _divisor(size: int | None, wanted: int) -> int:
    """The number of pieces nearest to what is wanted that divides a size, if one is near."""
    if size is None:
        return wanted
    near = [n for n in range(max(2, wanted // 2), wanted * 2 + 1) if size % n == 0]
    return min(near, key=lambda n: abs(n - wanted), default=wanted)


def _longest(node: Reduction) -> Axis:
    return max(node.reduced, key=lambda a: estimate(a.size))


def _split(node: Reduction, pieces: int, name: str) -> tuple[Reduction, Reduction]:
    """The reductions of the pieces, and of what they come to."""
    cut = _longest(node)
    piece = Axis(f"{cut.name}_piece", to_index(pieces))
    length = (cut.size + (pieces - 1)) // to_index(pieces)
    within = Axis(f"{cut.name}_within", length)
    place = to_index(piece) * length + to_index(within)
    values: dict[Atom, Index] = {cut: place}
    body = node.body.substitute(values)
    if cut.size.constant is None or cut.size.constant % pieces:
        inside = call("lt", index_value(place), index_value(cut.size))
        body = Guarded(body.dtype, inside, body, neutral(node.kind, body.dtype))
    size = (to_index(pieces), *(a.size for a in node.axes))
    strides = tuple(product(size[k + 1 :]) for k in range(len(size)))
    part = Buffer(name, node.out.dtype, size, strides, node.out.device)
    where = (to_index(piece), *(to_index(a) for a in node.axes))
    reduced = tuple(within if a == cut else a for a in node.reduced)
    first = replace(
        node, out=part, axes=(piece, *node.axes), reduced=reduced, index=where, body=body
    )
    again = Axis(f"{cut.name}_again", to_index(pieces))
    load = Load(part.dtype, name, (to_index(again), *where[1:]))
    return first, replace(node, reduced=(again,), body=load)


def neutral(kind: str, dtype: torch.dtype) -> Expr:
    """What changes no result of a reduction."""
    if kind in ("sum", "prod"):
        return constant(dtype, 0 if kind == "sum" else 1)
    if dtype in FLOATS:
        return constant(dtype, float("inf") if kind == "min" else float("-inf"))
    if dtype == torch.bool:
        return constant(dtype, kind == "min")
    limits = torch.iinfo(dtype)
    return constant(dtype, limits.max if kind == "min" else limits.min)
