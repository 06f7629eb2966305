"""The variants in which a C++ kernel can be written, and the conditions of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.cpp.emitters.text import index_text
from tcdebug.compiler.codegen.cpp.index_sets import Split, split
from tcdebug.compiler.codegen.cpp.lanes import LANES
from tcdebug.compiler.codegen.cpp.transposed_loads import (
    Tiling,
    TransposedResults,
    TransposedRows,
    row_step,
)
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, loaded_dtypes
from tcdebug.compiler.codegen.kernels.short_columns import rows_together
from tcdebug.compiler.codegen.kernels.sweeps import reads_of, segments
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.cost import LONGEST_TRANSPOSED_ROW, arithmetic, has_function
from tcdebug.compiler.ir.expr import Guarded, Load, indices, indirect_atoms, walk
from tcdebug.compiler.ir.operations import HALVES, gives_place

SCRATCH = 1 << 13
"""The longest row, in elements, that is kept for a later sweep instead of recomputed."""
KEPT = 1 << 19
"""The most bytes that are kept for a later sweep across rows: half of a cache's second level."""
EXPENSIVE = 8
"""The arithmetic (see ir/cost.py) from which keeping a value pays."""
GATHER = 8.0
NEAR = 0.25
ROW_END, STORED_ROW_END = 20.0, 46.0
"""The cost of adding the lanes of a vector at the end of a row, and if a sweep stores rows too."""
HALVES_END, STORED_HALVES_END = 30.0, 180.0
"""The same with operands or rows in bfloat16 or float16."""
SCALAR = 3.0
"""The cost of an operation on one number, such as a row's sum, instead of on a vector."""
VECTOR = 16
"""The lanes of a vector of floats."""
VECTOR_BYTES = 64
TRANSPOSED = 1.5
"""The cost of an element of a row that is transposed: copied in blocks, and read once more."""
FAR_TRANSPOSED = 2.5
"""The same if all arrays together exceed the first level of the cache."""
FIRST_LEVEL = 1 << 15
"""The bytes of the first level of the cache."""
STEPPED = 4.0
"""The cost of such an element if it is copied alone, because its row is strided or has too few."""
SHORTEST_BLOCK = 8
"""The fewest elements of a row that is transposed in registers."""
LEFT_OVER = 3.0
"""The cost of an operation on a point that is left over at the end of a row, or of a position."""
SCAN = 5.0
"""The cost of a step of a scan, which waits for the one before."""
FROM_MEMORY = 1 << 20
"""The bytes from which a loop waits for memory: as many as the second level of the cache holds."""
NARROWEST = 4
"""The fewest bytes of an element in narrow vectors: bfloat16 in them took 1.13 times as long."""
GRAIN = 1 << 15
"""The most points for which a kernel runs on one thread."""


@dataclass(frozen=True)
class KernelVariant:
    """The chosen variant of a kernel. The gate allowed every field that is set."""

    vectorize: bool = False
    parallelize: bool = False
    lane: Axis | None = None
    rows: int = 1
    """The rows that are processed together if the lanes run along a short axis."""
    tiling: Tiling | None = None
    transposed: TransposedRows | None = None
    results: TransposedResults | None = None
    split: bool = False
    scratch: bool = False
    index_sets: Split | None = None
    cut_sweeps: bool = False
    branchless: bool = False
    blocks: bool = False
    column_values: bool = False
    narrow: bool = False
    float16_rows: bool = False
    reversed_rows: bool = False

    @property
    def in_runs(self) -> bool:
        """Whether parts of rows are converted or reversed before the loops that read them."""
        return self.float16_rows or self.reversed_rows


def innermost(kernel: FlatKernel, lane: Axis | None) -> Axis | None:
    """Return the axis of the innermost loop: that of the lanes in column mode."""
    return lane or (kernel.inner[-1] if kernel.inner else None)


def points(kernel: FlatKernel) -> Index:
    """Return the number of iterations of the innermost loop in total."""
    return product(a.size for a in (*kernel.outer, *kernel.inner))


def can_share(kernel: FlatKernel) -> bool:
    """Whether the loops are worth a parallel region, which costs 0.7 us even on one thread."""
    known = points(kernel).constant
    return bool(kernel.outer or kernel.inner) and (known is None or known > _grain(kernel))


def is_large(kernel: FlatKernel) -> str:
    """Return the condition in C++ under which several threads are worth it."""
    return f"{index_text(points(kernel))} > {_grain(kernel)}"


def _grain(kernel: FlatKernel) -> int:
    """Return the most iterations for one thread. One may stand for several points."""
    return GRAIN // kernel.step


def threads_pragma(kernel: FlatKernel, choices: KernelVariant) -> str:
    """Return the pragma of a loop whose points threads share; empty if they do not."""
    if not choices.parallelize:
        return ""
    return f"#pragma omp parallel for num_threads(threads) if ({is_large(kernel)})"


def accessed(kernel: FlatKernel) -> list[tuple[Index, int]]:
    """Return the addresses that the inner loops access, and in how many buffers."""
    found: dict[str, tuple[Index, set[str]]] = {}
    for node in kernel.nodes:
        if node.inside:
            loads = [e for e in walk(node.body) if isinstance(e, Load) and e.index]
            accesses = [(e.buffer, e.index[0]) for e in loads]
            if node.name in kernel.stored and not node.reduces:
                accesses.append((node.name, node.address))
            for buffer, address in accesses:
                found.setdefault(address.key, (address, set()))[1].add(buffer)
    return [(address, len(buffers)) for address, buffers in found.values()]


def _in_buffers(cost: float, buffers: int) -> float:
    """Return the cost of an address in so many buffers.

    Each of them takes a cache line per lane, but those whose neighbours are next to each other
    hardly take longer than one.
    """
    return cost * buffers if cost >= GATHER else cost


def _loaded(kernel: FlatKernel) -> list[Index]:
    """Return the addresses that the inner loops load from, once for each node that does."""
    return [
        expr.index[0]
        for node in kernel.nodes
        if node.inside
        for expr in walk(node.body)
        if isinstance(expr, Load) and expr.index
    ]


def lane_axis(kernel: FlatKernel, *, transposing: bool) -> Axis | None:
    """Return the outer axis for vector lanes; None if the last inner axis is better.

    `transposing` says whether short rows may be transposed (`transposed_rows`).

    The cost of an axis is the time per point for which the inner loops access memory, in that of an
    element next to that of the neighbouring lane:

    - 0 for an element that all lanes share, s if neighbours are s elements apart and s is small;
    - TRANSPOSED for an element of a short row that is contiguous, and transposed in a block;
    - GATHER for any other element, since each lane touches a cache line of its own;
    - all of it divided by the share of the vector that a short axis fills.

    Lanes along the last inner axis load an element that does not depend on the inner axes once per
    row, which costs nothing. Lanes along an outer axis load it again at each point, from the first
    level of the cache, and keep their accumulators in memory. These cost NEAR each. At the end of a
    row, the lanes of its sum are added, and what follows is done for one number at a time. So is
    the work on points that are left over after the last whole vector, and on positions and scans;
    it counts where lanes across rows touch no cache line of their own.

    Of axes with equal costs, the one with cheaper loads is better: each sweep repeats them.
    """
    if not kernel.accumulates or not kernel.outer or not kernel.inner or kernel.columns:
        return None
    touched = accessed(kernel)
    read = _loaded(kernel)
    best = min(
        kernel.outer,
        key=lambda axis: (
            _column_cost(kernel, touched, axis, transposing),
            sum(_access_cost(address, axis) for address in read),
        ),
    )
    row = _row_cost(kernel, touched)
    if not any(_lane_cost(kernel, a, best, transposing) >= GATHER for a, _ in touched):
        row += _one_by_one(kernel)
    return best if _column_cost(kernel, touched, best, transposing) < row else None


def _row_cost(kernel: FlatKernel, touched: Sequence[tuple[Index, int]]) -> float:
    """Return the cost of memory per point with lanes along the last inner axis."""
    last = kernel.inner[-1]
    costs = (_in_buffers(_access_cost(address, last), buffers) for address, buffers in touched)
    cost = sum(costs) / _filled(last)
    return cost + _row_end(kernel) / _length(kernel)


def _row_end(kernel: FlatKernel) -> float:
    """Return the cost of what is done once per row."""
    inside = [n for n in kernel.nodes if n.inside]
    stores = any(not n.reduces and n.name in kernel.stored for n in inside)
    if _accessed_dtypes(inside).isdisjoint(HALVES):
        end = STORED_ROW_END if stores else ROW_END
    else:
        end = STORED_HALVES_END if stores else HALVES_END
    after = sum(arithmetic(n.body) for n in kernel.nodes if not n.inside)
    return end * sum(n.reduces for n in kernel.nodes) + SCALAR * after


def _accessed_dtypes(nodes: Sequence[FlatNode]) -> set[torch.dtype]:
    """Return the dtypes of nodes and of what they load."""
    return loaded_dtypes(nodes) | {n.dtype for n in nodes}


def _one_by_one(kernel: FlatKernel) -> float:
    """Return the cost per point of what is done for one number at a time with lanes along a row.

    A vector has as many lanes as elements of the narrowest dtype fit, or half of them, and so on,
    until the row fills it.
    """
    size = kernel.inner[-1].size.constant
    inside = [n for n in kernel.nodes if n.inside]
    if any(n.scans for n in inside):
        return SCAN
    if any(gives_place(n.kind) for n in inside):
        return LEFT_OVER
    if not size or size > LONGEST_TRANSPOSED_ROW:
        return 0.0
    narrowest = min(dtype.itemsize for dtype in _accessed_dtypes(inside))
    lanes = VECTOR_BYTES // narrowest
    while lanes > size:
        lanes //= 2
    work = sum(1 + arithmetic(n.body) for n in inside)
    return LEFT_OVER * work * (size % lanes) / size


def _column_cost(
    kernel: FlatKernel, touched: Sequence[tuple[Index, int]], axis: Axis, transposing: bool
) -> float:
    """Return the cost of memory per point with lanes along an outer axis."""
    inner = frozenset(kernel.inner)
    cost = NEAR * sum(bool(n.kind) for n in kernel.nodes)
    for address, buffers in touched:
        access = _in_buffers(_lane_cost(kernel, address, axis, transposing), buffers)
        cost += access if inner & address.axes else min(access, NEAR)
    loaded = {address.key for address in _loaded(kernel)}
    for node in kernel.nodes:
        if node.name not in kernel.stored:
            continue
        if node.reduces or not node.inside:
            cost += _access_cost(node.address, axis) / _length(kernel)
        elif (
            node.address.key in loaded
            and transposing
            and row_step(node.address, axis, kernel.inner)
        ):
            cost += _lane_cost(kernel, node.address, axis, transposing)  # an array of its own
    return cost / (1.0 if rows_together(kernel, axis) > 1 else _filled(axis))


def _lane_cost(kernel: FlatKernel, address: Index, axis: Axis, transposing: bool) -> float:
    """Return the cost of an access with lanes along an outer axis. Rows may be transposed."""
    access = _access_cost(address, axis)
    step = row_step(address, axis, kernel.inner) if transposing else 0
    if not step or access <= TRANSPOSED:
        return access
    if step > 1 or _length(kernel) < SHORTEST_BLOCK:
        return min(access, STEPPED)
    is_near = _array_bytes(kernel, axis) <= FIRST_LEVEL
    return min(access, TRANSPOSED if is_near else FAR_TRANSPOSED)


def _array_bytes(kernel: FlatKernel, axis: Axis) -> int:
    """Return the bytes of the arrays in which rows are transposed, with lanes along an axis."""
    sizes: dict[tuple[str, str], int] = {}
    for node in kernel.nodes:
        loads = (e for e in walk(node.body) if isinstance(e, Load) and e.index)
        accessed = [(e.buffer, e.index[0], e.dtype) for e in loads]
        if node.name in kernel.stored and not node.reduces:
            accessed.append((node.name, node.address, node.dtype))
        for buffer, address, dtype in accessed if node.inside else ():
            if row_step(address, axis, kernel.inner):
                sizes[buffer, address.key] = dtype.itemsize
    return sum(sizes.values()) * _length(kernel) * LANES


def _length(kernel: FlatKernel) -> int:
    """Return the estimated points of a row."""
    return max(1, estimate(product(a.size for a in kernel.inner)))


def _access_cost(address: Index, axis: Axis) -> float:
    stride = address.coefficient(axis)
    if stride is None or stride.constant is None:
        return GATHER
    return min(GATHER, abs(stride.constant))


def _filled(axis: Axis) -> float:
    """Return the share of a vector that the points of an axis fill."""
    return min(1.0, max(1, estimate(axis.size)) / VECTOR)


def work_per_point(nodes: Sequence[FlatNode]) -> int:
    """Return the arithmetic of nodes at a point. In order, an extreme waits for the one before."""
    extremes = sum(n.kind in ("max", "min") for n in nodes)
    return sum(arithmetic(n.body) for n in nodes) + EXPENSIVE * extremes


def can_split(kernel: FlatKernel) -> bool:
    """Whether the kernel is one sweep of reductions without outer loops, for several threads."""
    if kernel.outer or not kernel.accumulates or not kernel.inner or kernel.scans:
        return False
    if not can_share(kernel):
        return False
    return sum(s.sweep for s in segments(kernel)) == 1


def crossing(kernel: FlatKernel, lanes: int = 1) -> set[str]:
    """Expensive values that a later sweep reads, that are not stored, and that fit in the cache.

    `lanes` is the number of rows that a sweep covers.
    """
    size = kernel.inner[0].size.constant if len(kernel.inner) == 1 else None
    if size is None or size > SCRATCH:
        return set()
    plan = [s for s in segments(kernel) if s.sweep]
    found: dict[str, int] = {}
    for position, segment in enumerate(plan):
        for node in segment.nodes:
            if node.kind or node.name in kernel.stored or _recomputed(kernel, node) < EXPENSIVE:
                continue
            later = plan[position + 1 :]
            if any(node.name in reads_of(n) for s in later for n in s.nodes):
                found[node.name] = node.dtype.itemsize
    return set(found) if lanes == 1 or sum(found.values()) * size * lanes <= KEPT else set()


def _recomputed(kernel: FlatKernel, node: FlatNode) -> int:
    """Return the arithmetic that another sweep repeats for the value of a node."""
    made = {n.name: n for n in kernel.nodes if n.inside and not n.kind}
    needed: dict[str, FlatNode] = {}
    left = [node]
    while left:
        latest = left.pop()
        if latest.name not in needed:
            needed[latest.name] = latest
            read = reads_of(latest) - kernel.stored
            left += [made[name] for name in read if name in made]
    return sum(arithmetic(n.body) for n in needed.values())


def index_sets(kernel: FlatKernel) -> Split | None:
    """Return the parts of the innermost loop, if it has conditions and no other order of points."""
    if kernel.accumulates or not kernel.inner or any(n.scatters for n in kernel.nodes):
        return None
    plan = segments(kernel)
    return split(plan[0].nodes, kernel.inner[-1]) if len(plan) == 1 else None


def waits_for_memory(kernel: FlatKernel) -> bool:
    """Return whether a kernel only moves many elements of one width, with little arithmetic.

    Vectors of 512 bits then gain nothing, and lose where a result is stored 64 bytes behind an
    operand, in addresses modulo 4096: a load seems to need what was stored just before it. Memory
    that is allocated after an operand of whole pages begins there.
    """
    last, known = kernel.inner[-1:], points(kernel).constant
    if kernel.accumulates or not last or known is None:
        return False
    if any(n.scatters or n.kind for n in kernel.nodes):
        return False
    accessed = [(n.dtype, n.address) for n in kernel.nodes if n.name in kernel.stored]
    for expr in (e for n in kernel.nodes for e in walk(n.body)):
        if isinstance(expr, Guarded) or any(indirect_atoms(i) for i in indices(expr)):
            return False
        if isinstance(expr, Load) and expr.index:
            accessed.append((expr.dtype, expr.index[0]))
    widths = {dtype.itemsize for dtype, _ in accessed}
    if len(widths) != 1 or min(widths) < NARROWEST:
        return False
    if any(_access_cost(address, last[0]) > 1 for _, address in accessed):
        return False
    moved = sum(_access_cost(address, last[0]) == 1 for _, address in accessed)
    work = sum(arithmetic(n.body) for n in kernel.nodes)
    heavy = any(has_function(n.body) for n in kernel.nodes)
    return moved * known * min(widths) >= FROM_MEMORY and work <= EXPENSIVE and not heavy
