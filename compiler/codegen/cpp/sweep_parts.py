"""Cuts the loop of a sweep where conditions change, for kernels with several sweeps or results.

A row that is joined or padded, and then normalised, is read in parts by each sweep. What a sweep
computes again of earlier ones is cut in the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcdebug.compiler.codegen.cpp.accumulator import leaves_work
from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter
from tcdebug.compiler.codegen.cpp.index_sets import Part, split
from tcdebug.compiler.codegen.cpp.lanes import block_of
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.sweeps import Segment, of_other_sweeps, reads_of, segments
from tcdebug.compiler.ir.linear_parts import fills_vectors

WriteLoops = Callable[[Segment, str, str], None]
"""Writes the loops of a sweep between two bounds."""


def cuts_sweeps(kernel: FlatKernel) -> bool:
    """Return whether the loops of the sweeps of an accumulating kernel are cut into parts.

    They are not if a sweep would be visited in blocks, and a part ends with single points that
    compute functions.
    """
    if not kernel.accumulates:
        return False
    sweeps = segments(kernel)
    parts = [part for sweep in sweeps for part in _parts(kernel, sweep)]
    whole = all(_fills_vectors(part) for part in parts)
    return bool(parts) and (whole or not any(block_of(kernel, sweep) for sweep in sweeps))


def _fills_vectors(part: Part) -> bool:
    length = part.high - part.low
    return fills_vectors(length) or not leaves_work(part.nodes, length)


def write_sweep_parts(
    emit: CppEmitter, kernel: FlatKernel, segment: Segment, write: WriteLoops
) -> bool:
    """Write the loop of a sweep in parts. Returns whether it has any; otherwise writes nothing."""
    parts, count = _parts(kernel, segment), len(segment.nodes)
    whole, depth = dict(emit.recompute), emit.part
    emit.part = len(emit.blocks)
    for part in parts:
        emit.enter(f"/* {kernel.inner[0].name} from {part.low} to {part.high} */")
        emit.recompute.update({node.name: node for node in part.nodes[count:]})
        write(replace(segment, nodes=part.nodes[:count]), str(part.low), str(part.high))
        emit.leave()
    emit.recompute, emit.part = whole, depth
    return bool(parts)


def _parts(kernel: FlatKernel, segment: Segment) -> tuple[Part, ...]:
    """Return the parts of the loop of a sweep; none if it is one loop.

    Their nodes are those of the sweep, and then those that it may compute again.
    """
    if not segment.sweep or len(kernel.inner) != 1 or kernel.scans:
        return ()
    found = split((*segment.nodes, *_computed_again(kernel, segment)), kernel.inner[0])
    return found if isinstance(found, tuple) and len(found) > 1 else ()


def _computed_again(kernel: FlatKernel, segment: Segment) -> list[FlatNode]:
    """Return the nodes of other sweeps that a sweep reads, directly or through others."""
    others = {node.name: node for node in of_other_sweeps(kernel, segment)}
    found, left = list[FlatNode](), list(segment.nodes)
    while left:
        for name in sorted(reads_of(left.pop()) & others.keys()):
            found.append(others.pop(name))
            left.append(found[-1])
    return found
