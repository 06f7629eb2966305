"""Divides the loop of a scan into loops that can be vectorized and one that runs in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter, PointRun
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, index_text, loop
from tcdebug.compiler.codegen.cpp.transposed_loads import BlockedAxis, block_start
from tcdebug.compiler.codegen.kernels.flatten import FlatNode, loaded_dtypes
from tcdebug.compiler.codegen.kernels.sweeps import reads_of
from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.cost import arithmetic
from tcdebug.compiler.ir.expr import Load

PIECE = 256
"""The points of a piece of a scan. Its values stay in the first level of the cache."""
WORTH = 8
"""The arithmetic per point (see ir/cost.py) from which separate loops pay."""


@dataclass(frozen=True)
class ScanPieces:
    """Three loops over the same points. Only the second one must run in order."""

    before: tuple[FlatNode, ...]
    """The values that are scanned, and all others that read no state of a scan."""
    scans: tuple[FlatNode, ...]
    """The scans, whose bodies only read a value from `before`."""
    after: tuple[FlatNode, ...]

    @property
    def crossing(self) -> frozenset[str]:
        """The values that a later loop reads."""
        loops = (self.before, self.scans, self.after)
        return frozenset(
            node.name
            for position, loop in enumerate(loops)
            for node in loop
            if any(node.name in reads_of(n) for later in loops[position + 1 :] for n in later)
        )


def scan_pieces(nodes: Sequence[FlatNode]) -> ScanPieces | None:
    """Return the loops of the nodes of a sweep with scans; None if one loop costs no more.

    A node that overwrites an input may run only after all reads of a point, so it needs one loop.
    """
    if any(n.reduces or n.into for n in nodes) or not _is_worth(nodes):
        return None
    states = {n.name for n in nodes if n.scans}
    before: list[FlatNode] = []
    scans: list[FlatNode] = []
    after: list[FlatNode] = []
    for node in nodes:
        if reads_of(node) & states:
            if node.scans:
                return None
            states.add(node.name)
            after.append(node)
        elif node.scans:
            value = replace(node, name=f"scanned_{node.name}", kind="", dtype=node.body.dtype)
            before.append(value)
            scans.append(replace(node, body=Load(node.body.dtype, value.name, ())))
        else:
            before.append(node)
    return ScanPieces(tuple(before), tuple(scans), tuple(after))


def _is_worth(nodes: Sequence[FlatNode]) -> bool:
    """Return whether what vectors can compute takes longer than two more loops.

    One conversion of float16 is enough: a number alone takes ten operations.
    """
    if torch.float16 in loaded_dtypes(nodes) | {n.dtype for n in nodes}:
        return True
    return sum(arithmetic(n.body) for n in nodes) >= WORTH


def write_pieces(
    emit: CppEmitter,
    pieces: ScanPieces,
    block: BlockedAxis,
    bounds: tuple[str, str],
    compute: Callable[[FlatNode], None],
) -> None:
    """Write the loops, piece by piece, between the bounds of the axis.

    `compute` writes what a node does at the current point. Values that a later loop reads are kept
    in an array.
    """
    start = block_start(block.axis)
    place = to_index(block.axis) - to_index(start)
    emit.enter(loop(start, *bounds, block.step), (start,))
    emit.innermost.add(f"const int64_t {block.high} = {block.end};")
    for node in (*pieces.before, *pieces.scans, *pieces.after):
        if node.name in pieces.crossing:
            emit.innermost.add(f"{TYPES[node.dtype]} piece_{node.name}[{block.step}];")
    for nodes in (pieces.before, pieces.scans, pieces.after):
        if not nodes:
            continue
        emit.enter(loop(block.axis, block.low, block.high), (block.axis,))
        if nodes is not pieces.scans:
            count = f"{block.high} - {block.low}"
            emit.run(
                PointRun(block.axis, to_index(start), count, str(block.step), index_text(place))
            )
        for node in nodes:
            compute(node)
            if node.name in pieces.crossing:
                value = emit.values[node.name].text
                emit.innermost.add(f"piece_{node.name}[{index_text(place)}] = {value};")
        emit.leave("" if nodes is pieces.scans else "#pragma omp simd")
        for node in nodes:
            del emit.values[node.name]
            emit.kept[node.name] = (f"piece_{node.name}", place)
    emit.leave()
