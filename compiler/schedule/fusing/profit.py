"""Whether one kernel of several nodes pays, and how many bytes it saves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.size_estimate import (
    begin_at_sectors,
    estimate,
    nearest,
    with_most_points,
)
from tcdebug.compiler.ir.cost import (
    LONGEST_TRANSPOSED_ROW,
    MOST_READ_ACROSS,
    arithmetic,
    bytes_of,
    has_function,
)
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.graph import Buffer, Graph, LoopNode, Pointwise, Scan, output_refs, reads
from tcdebug.compiler.schedule.fusing.align import Loops, sweeps

LARGEST_KERNEL = 48
"""The most nodes in a kernel. More make the C++ compiler slow and spill registers."""
LARGEST_WORK = 1500
"""The most arithmetic in a C++ kernel of several groups. g++ takes about a second for as much in
float16, and the time grows faster than the work."""
ROW_IN_CACHE = 1 << 16
"""The longest single row, in elements, that a kernel may sweep several times."""

LONGEST_TURNED_ROW = 64
"""The longest row that a program on a GPU can read along and store across, or the reverse."""
LONGEST_ROW_BETWEEN, LONGEST_UNROLLED_ROW = 32, 8
"""The longest row if neighbours of what a program on a GPU reads lie along one axis, and those of
what it stores along another, and the longest one if rows of memory may begin within a sector."""
ANOTHER_SWEEP = 0.875
"""What it is worth to save a byte if that takes another sweep over the columns of a kernel."""
THREAD_WORK_PER_BYTE = 2
"""The operations that one thread of a CPU computes while it loads or stores a byte."""
SHORTEST_RUN = 8
"""The fewest neighbours that are worth a kernel of their own."""
NEAR = range(1, 5)
"""The strides, in elements, of neighbours for a CPU."""


def too_large(first: Sequence[LoopNode], second: Sequence[LoopNode], work: int) -> str:
    """Return why a kernel of two groups would be too large; empty if it would not be."""
    count = len(first) + len(second)
    if count > LARGEST_KERNEL:
        return f"they have {count} nodes together, and a kernel has at most {LARGEST_KERNEL}"
    if work > LARGEST_WORK:
        return f"they have {work} operations together, and a kernel has at most {LARGEST_WORK}"
    return ""


def work_of(nodes: Iterable[LoopNode]) -> int:
    """Return the arithmetic of the nodes that are written in C++."""
    return sum(arithmetic(n.body) for n in nodes if n.out.device.type == "cpu")


def readers_of(graph: Graph) -> dict[str, set[str]]:
    """Value -> the nodes that read it. An output of the graph has a reader without a name."""
    found = {name: {""} for name in output_refs(graph)}
    for node in graph.nodes:
        for name in reads(node):
            found.setdefault(name, set()).add(node.name)
    return found


def pays(loops: Loops) -> bool:
    """Return whether fusion pays.

    Several sweeps over one long row are no faster than several kernels.
    """
    if not loops.inner or estimate(product(a.size for a in loops.outer)) > 1:
        return True
    return sweeps(loops) == 1 or estimate(product(a.size for a in loops.inner)) <= ROW_IN_CACHE


def saved_bytes(
    points: Loops,
    rows: Loops,
    buffers: Mapping[str, Buffer],
    readers: Mapping[str, set[str]],
) -> float:
    """Return how many bytes one kernel of points and of reductions saves.

    It loads once what both read, and does not load what one of them computes for the other, nor
    store that if nothing else reads it. Rows are cached for further sweeps; columns are loaded
    again. On a CPU, functions that reductions read are computed again in each sweep.
    """
    made = {n.name for n in points.nodes}, {n.name for n in rows.nodes}
    read = [set[str]().union(*(reads(n) for n in loops.nodes)) for loops in (points, rows)]
    between, both = read[0] & made[1] | read[1] & made[0], made[0] | made[1]
    inside = [name for name in between if readers.get(name, set()) <= both]
    shared = (read[0] & read[1]) - both
    saved = sum(bytes_of(buffers[n]) for n in (*between, *inside, *shared) if n in buffers)
    before, more = read[0].isdisjoint(made[1]), sweeps(rows) - 1
    worth = ANOTHER_SWEEP ** (more if before else more + 1) if runs_across(rows, buffers) else 1
    elements = estimate(product(a.size for a in points.axes))
    work = work_of(n for n in points.nodes if has_function(n.body))
    again = elements * more * work / THREAD_WORK_PER_BYTE if before else 0
    return saved * worth - again


def meets(loops: Loops, names: set[str], buffers: Mapping[str, Buffer]) -> bool:
    """Whether the nodes of these names and the other nodes gain from a common buffer.

    A program on a GPU gains if both load a common element at each point. A kernel on a CPU also
    gains from neighbours, which are in its cache, but not if it reduces rows and columns of a
    buffer: in a square, the loops over both are equal.
    """
    on_cpu = any(n.out.device.type == "cpu" for n in loops.nodes)
    if on_cpu and not loops.inner:
        return True
    touched: tuple[set[object], set[object]] = set(), set()
    for node in loops.nodes:
        for load in loads(node.body):
            if load.index:
                along = nearest(buffers[load.buffer].address(load.index), loops.axes)
                key = (load.buffer, along) if on_cpu else load.key
                touched[node.name in names].add(key)
    return not touched[0].isdisjoint(touched[1])


def crosses(loops: Loops, buffers: Mapping[str, Buffer], readers: Mapping[str, set[str]]) -> bool:
    """Return whether a kernel that stores reads or stores along several axes.

    Some of the loads or stores of a vector would touch a cache line for each element. On a GPU, one
    axis along which it both reads and stores is enough. A kernel without reductions transposes
    blocks of what it reads, if that is not much, and one on a CPU that reduces short rows
    transposes those (codegen/cpp/transposed_loads.py). On a GPU, rows may lie along memory.
    """
    on_gpu = any(n.out.device.type != "cpu" for n in loops.nodes)
    if not loops.inner and not on_gpu:
        return _reads_many_across(loops, buffers, readers)
    if not loops.inner or (on_gpu and any(isinstance(n, Scan) for n in loops.nodes)):
        return False
    made = {n.name for n in loops.nodes}
    along_loads, along_stores = set[Axis](), set[Axis]()
    touched: list[Index] = []
    for node in loops.nodes:
        for load in loads(node.body):
            if load.buffer not in made:
                touched.append(buffers[load.buffer].address(load.index))
                along_loads |= _runs_along(touched[-1], loops, on_gpu=on_gpu)
        if isinstance(node, Pointwise) and not readers.get(node.name, set()) <= made:
            touched.append(node.out.address(node.index))
            along_stores |= _runs_along(touched[-1], loops, on_gpu=on_gpu)
    if not along_loads or not along_stores or len(along_loads | along_stores) < 2:
        return False
    rows = estimate(product(a.size for a in loops.inner))
    if on_gpu and along_loads & along_stores:
        return False
    if on_gpu:
        if not (along_loads | along_stores).isdisjoint(loops.inner):
            return rows > LONGEST_TURNED_ROW
        whole = all(begin_at_sectors(i, loops.axes) for i in touched)
        return rows > (LONGEST_ROW_BETWEEN if whole else LONGEST_UNROLLED_ROW)
    return rows > LONGEST_TRANSPOSED_ROW or not along_stores & set(loops.inner)


def _reads_many_across(
    loops: Loops, buffers: Mapping[str, Buffer], readers: Mapping[str, set[str]]
) -> bool:
    """Return whether a pointwise kernel would transpose too much of what it reads.

    It cannot transpose what it stores, such as a value with its copy in another layout. Short axes
    have no vectors.
    """
    made = {n.name for n in loops.nodes}
    long = [a for a in loops.axes if estimate(a.size) >= SHORTEST_RUN]
    read = {e.key: e for n in loops.nodes for e in loads(n.body) if e.buffer not in made}
    whole = (e for e in read.values() if {*long} <= {a for i in e.index for a in i.axes})
    along = [nearest(buffers[e.buffer].address(e.index), long) for e in whole]
    outside = (n for n in loops.nodes if not readers.get(n.name, set()) <= made)
    stored = {nearest(n.out.address(n.index), long) for n in outside} - {None}
    return len(stored) > 1 or any(
        sum(a != axis for a in along) > MOST_READ_ACROSS for axis in stored
    )


def _runs_along(address: Index, loops: Loops, *, on_gpu: bool) -> set[Axis]:
    """The long axis along which an access to all points of some loops has its neighbours.

    On a CPU, several of them are in a cache line. On a GPU, it is the one with the smallest stride.
    """
    long = [a for a in loops.axes if estimate(a.size) > 1]
    if not all(a in address.axes for a in long):
        return set()
    if on_gpu:
        along = nearest(address, [a for a in long if estimate(a.size) >= SHORTEST_RUN])
        return set() if along is None else {along}
    steps = {a: address.coefficient(a) for a in long if estimate(a.size) >= SHORTEST_RUN}
    return {a for a, step in steps.items() if step is not None and step.constant in NEAR}


def runs_across(loops: Loops, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether most loads of loops have their neighbours along an outer axis.

    Loads of fewer elements than others, such as one for each row or column, do not count.
    """
    read = {e.key: buffers[e.buffer].address(e.index) for n in loops.nodes for e in loads(n.body)}
    along = [nearest(index, loops.axes) for index in with_most_points([*read.values()])]
    outer = sum(axis in loops.outer for axis in along)
    return outer > sum(axis in loops.inner for axis in along)
