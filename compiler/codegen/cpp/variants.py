"""The variants in which a C++ kernel can be written, and the conditions of each."""

from __future__ import annotations

from dataclasses import dataclass

from tcdebug.compiler.codegen.cpp.transposed_loads import Tiling
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.sweeps import reads_of, segments
from tcdebug.compiler.ir.expr import indices, walk
from tcdebug.compiler.ir.index import Axis, Index, product
from tcdebug.compiler.schedule.cost import arithmetic

SCRATCH = 1 << 13
"""The longest row, in elements, that is kept for a later sweep instead of recomputed."""
EXPENSIVE = 8
"""The arithmetic (see schedule/cost.py) from which keeping a value pays."""
GRAIN = 1 << 15
"""The most points for which a kernel runs on one thread."""


@dataclass(frozen=True)
class KernelVariant:
    """The chosen variant of a kernel. The gate allowed every field that is set."""

    vectorize: bool = False
    parallelize: bool = False
    lane: Axis | None = None
    tiling: Tiling | None = None
    split: bool = False
    scratch: bool = False


def points(kernel: FlatKernel) -> Index:
    """The number of iterations of the innermost loop in total."""
    return product(a.size for a in (*kernel.outer, *kernel.inner))


def can_share(kernel: FlatKernel) -> bool:
    """Whether the loops are worth a parallel region, which costs 0.7 us even on one thread."""
    known = points(kernel).constant
    return bool(kernel.outer or kernel.inner) and (known is None or known > GRAIN)


def contiguous(index: Index, axis: Axis) -> bool:
    """Whether neighbours along the axis are neighbours in memory."""
    return index.coefficient(axis) == 1


def addresses(kernel: FlatKernel) -> list[Index]:
    """The addresses that the inner loops access."""
    found: list[Index] = []
    for node in kernel.nodes:
        if node.inside:
            found += [i for e in walk(node.body) for i in indices(e)]
            if node.name in kernel.stored and not node.reduces:
                found.append(node.address)
    return found


def lane_axis(kernel: FlatKernel) -> Axis | None:
    """The outer axis for vector lanes; None if the last inner axis is better."""
    if not kernel.accumulates or not kernel.outer or not kernel.inner:
        return None
    touched = addresses(kernel)
    best = max(kernel.outer, key=lambda a: sum(contiguous(i, a) for i in touched))
    along_outer = sum(contiguous(i, best) for i in touched)
    along_inner = sum(contiguous(i, kernel.inner[-1]) for i in touched)
    return best if along_outer > along_inner else None


def can_split(kernel: FlatKernel) -> bool:
    """Whether the kernel consists of a single sweep of reductions without outer loops."""
    if kernel.outer or not kernel.accumulates or not kernel.inner or kernel.scans:
        return False
    return sum(s.sweep for s in segments(kernel)) == 1


def crossing(kernel: FlatKernel) -> set[str]:
    """Expensive values that a later sweep reads, that are not stored, and whose row is short."""
    if len(kernel.inner) != 1:
        return set()
    size = kernel.inner[0].size.constant
    if size is None or size > SCRATCH:
        return set()
    plan = [s for s in segments(kernel) if s.sweep]
    found: set[str] = set()
    for position, segment in enumerate(plan):
        for node in segment.nodes:
            if node.kind or node.name in kernel.stored or arithmetic(node.body) < EXPENSIVE:
                continue
            later = plan[position + 1 :]
            if any(node.name in reads_of(n) for s in later for n in s.nodes):
                found.add(node.name)
    return found
