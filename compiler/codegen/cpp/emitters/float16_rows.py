"""codegen.float16_rows: converts neighbouring float16 numbers in vectors, outside of a loop.

Processors convert vectors of float16 in one instruction, which g++ 12 does not use when it
vectorizes a loop; arithmetic on the bits takes up to sixteen. Before a loop, the numbers that it
reads are therefore converted to an array of floats, and what it stores is converted from one after
the loop. An array of one vector, that of a block of a row, stays in a register.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from tcdebug.compiler.codegen.cpp.emitters.emit import INNERMOST, CppEmitter, Place, PointRun
from tcdebug.compiler.codegen.cpp.emitters.levels import clauses, divided, needed_lines
from tcdebug.compiler.codegen.cpp.emitters.text import Block, CppIndex
from tcdebug.compiler.codegen.halves.half_values import NARROW, as_float
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, to_index
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.expr import Call, Expr, IndexValue, Indirect, Load, walk

GROUP, LONGEST_GROUP = "TCD_GROUP", 256
"""The points that are converted at once in rows of a known length, and the most that these are.

With AVX2, they are 32, which stay in registers: `softshrink` of 802,816 numbers takes 182 us so,
and 303 us in groups of 256. With AVX-512, arrays of 256 took 0.8 of the time of registers in a
chain of four operations.
"""
POINTS = 256
"""The same in rows whose length is not known, or whose groups cannot overlap."""
POINTS_OF_SUM = 1024
"""The same in a loop with a reduction, whose lanes are added each time that it ends."""
BACKWARDS = -1
"""The step of a loop that visits neighbours from the last to the first."""


def converts_rows(kernel: FlatKernel, along: Axis | None, *, reverses: bool) -> bool:
    """Return whether the kernel converts float16 numbers that are neighbours along an axis.

    If it `reverses` rows, they may be in either order.
    """
    steps = (1, BACKWARDS) if reverses else (1,)
    if along is None:
        return False
    return any(_is_near(address, along, s) for address in _converted(kernel) for s in steps)


def _converted(kernel: FlatKernel) -> Iterator[Index]:
    for node in kernel.nodes:
        yield from (
            load.index[0] for load in map(converted_load, walk(node.body)) if load is not None
        )
        if node.name in kernel.stored and _narrowed(node) is not None:
            yield node.address


def _is_near(address: Index, along: Axis, step: int = 1) -> bool:
    """Return whether the elements at an address are neighbours along an axis, in one order."""
    if any(isinstance(atom, Indirect) and along in atom.axes for atom in address.atoms):
        return False
    stride = address.coefficient(along)
    return stride is not None and stride.constant == step


def converted_load(expr: Expr) -> Load | None:
    """Return the load of a float16 number that an expression converts to a float."""
    match expr:
        case Call(name="cast", dtype=torch.float32, args=(Load(index=(_,)) as load,)):
            return load if load.dtype == torch.float16 else None
    return None


def _narrowed(node: FlatNode) -> Expr | None:
    """Return the float that a node converts to float16; None if it does something else."""
    if node.dtype != torch.float16 or node.kind or node.scatters:
        return None
    match node.body:
        case Call(name="cast", args=(value,)) if value.dtype == torch.float32:
            return value
        case Call(name=name, args=(value,)) if name == NARROW:
            return value
    return None


@dataclass(frozen=True)
class RunOfRow(PointRun):
    """The points of a row that are converted at once."""

    high: str
    """The end of the run."""


def enter_runs(
    emit: CppEmitter, kernel: FlatKernel, bounds: tuple[str, str], pragma: str, *, groups: bool
) -> tuple[RunOfRow, str, str]:
    """Open a loop over the runs of a row, whose points are to be visited in a loop inside.

    The pragma of a loop over all points becomes one of the outer loop and one of the inner loop.
    A row that is a single run gets a block instead of the outer loop. If `groups` are allowed, runs
    are groups where possible.
    """
    axis, (low, high) = kernel.inner[-1], bounds
    start, end = emit.fresh(f"{axis.name}_run"), emit.fresh("end")
    most, size = POINTS_OF_SUM if kernel.accumulates else POINTS, axis.size.constant
    is_whole = size is not None and size <= most
    count = f"{end} - {start}"
    if groups and (overlap := _overlap_of_groups(kernel, low, high)) is not None:
        is_whole, count = False, GROUP
        group = emit.fresh(f"{axis.name}_group") if overlap else start
        emit.enter(f"for (int64_t {group} = {low}; {group} < {high}; {group} += {GROUP})")
        if overlap:
            emit.innermost.add(f"const int64_t {start} = index_min({group}, {high} - {GROUP});")
        emit.innermost.add(f"const int64_t {end} = {start} + {GROUP};")
    elif is_whole:  # g++ does not vectorize all loops within one of a single step
        emit.enter()
        emit.innermost.add(f"const int64_t {start} = {low};")
        emit.innermost.add(f"const int64_t {end} = {high};")
    else:
        emit.enter(f"for (int64_t {start} = {low}; {start} < {high}; {start} += {most})")
        emit.innermost.add(f"const int64_t {end} = index_min({start} + {most}, {high});")
    room = GROUP if count == GROUP else str(min(most, size or most))
    first = to_index(Axis(start, axis.size))
    run = RunOfRow(axis, first, count, room, f"{axis.name} - {start}", end)
    shared, simd = "#pragma omp parallel for simd", "#pragma omp simd"
    if not pragma.startswith(shared):
        return run, "", pragma
    return run, "" if is_whole else pragma.replace(" for simd", " for"), simd


def _overlap_of_groups(kernel: FlatKernel, low: str, high: str) -> int | None:
    """Return by how many points the last groups of a row may overlap; None if it has no groups.

    Points of two groups are computed twice, so they must not overwrite what they read.
    """
    if kernel.accumulates or not (low.isdigit() and high.isdigit()):
        return None
    length = int(high) - int(low)
    overlap = -length % LONGEST_GROUP
    overwrites = any(node.into or node.scatters for node in kernel.nodes)
    return None if length < LONGEST_GROUP or (overlap and overwrites) else overlap


@dataclass
class OpenRun:
    """The points of an open loop, and the lines that convert what it reads and stores."""

    run: PointRun
    before: list[str | Block] = field(default_factory=list)
    after: list[str | Block] = field(default_factory=list)


class ConvertingEmitter(CppEmitter):
    """Writes expressions into loops whose float16 numbers are converted before and after them."""

    def __init__(self, storage: Mapping[str, str]) -> None:
        super().__init__(storage)
        self._runs: dict[int, OpenRun] = {}  # depth -> the points of the loop
        self._stored_later: set[str] = set()

    def run(self, run: PointRun) -> None:
        """Convert numbers for the loop that was opened last."""
        self._runs[len(self.blocks) - 1] = OpenRun(run)

    def leave(self, pragma: str = "") -> Block:
        """Close the innermost block, and write the conversions before and after it."""
        found = self._runs.pop(len(self.blocks) - 1, None)
        if found is None:
            return super().leave(pragma)
        lines = needed_lines(self.innermost.items)
        if lines is not None:
            self.innermost.items = [line.text for line in lines]
        outside = self.blocks[-2]
        outside.items += found.before
        division = divided(lines, found.run.place) if lines and "simd" in pragma else None
        block = super().leave("" if division else pragma)
        if division is not None:
            outside.items.pop()
            arrays, loops = division
            most = found.run.most
            outside.items += [f"{ctype} at_{name}[{most}];" for name, ctype in arrays.items()]
            for loop in loops:
                outside.add(clauses(pragma, loop.lines))
                outside.items.append(Block(block.opening, items=list(loop.lines)))
                outside.items += [f"round_all(at_{n}, {found.run.count});" for n in loop.rounded]
        outside.items += found.after
        return block

    def store(self, node: FlatNode, value: Place) -> None:
        """Store the value of a node, in an array that is converted after the loop if possible."""
        checked = any(isinstance(atom, Indirect) for atom in node.address.atoms)
        wide, found = _narrowed(node), None if checked else self._run_of(node.address)
        if wide is None or found is None:
            super().store(node, value)
            return
        name, run = self.fresh("narrowed"), found.run
        found.before.append(f"float {name}[{run.most}];")
        self.innermost.add(f"{name}[{run.place}] = {self.value(wide).text};")
        memory = self._first(self._storage[node.name], node.address, run)
        found.after.append(f"narrow({name}, {run.count}, {memory});")
        self._stored_later.add(node.name)

    def _run_of(self, address: Index, step: int = 1) -> OpenRun | None:
        """Return the open loop that visits neighbours at an address; None if it visits others.

        They are visited in their order, or BACKWARDS.
        """
        if self._guards or self.counted is not None or self.changing:
            return None
        depth = len(self.blocks) - 1
        found = self._runs.get(depth)
        if found is None or not _is_near(address, found.run.axis, step):
            return None
        places = (self._place_of(a) for a in address.atoms if isinstance(a, Indirect))
        return None if any(place.depth >= depth for place in places) else found

    def _first(self, pointer: str, address: Index, run: PointRun) -> str:
        """Return a pointer to the first element of a run."""
        places = CppIndex(self._places(IndexValue(torch.int64, address)))
        return f"{pointer} + {render(address.substitute({run.axis: run.first}), places)}"

    def _lookup(self, node: Expr) -> Place | None:
        known = super()._lookup(node)
        if known is not None or not isinstance(node, Load) or node.dtype != torch.float16:
            return known
        if not node.index or not self._is_converted(node):
            return None
        # its conversion is known without it, so it gets no variable
        place = render(node.index[0], CppIndex(self._places(node)))
        return Place(f"{self._storage[node.buffer]}[{place}]", INNERMOST)

    def _is_converted(self, load: Load) -> bool:
        return self._run_of(load.index[0]) is not None

    def _compute(self, node: Expr) -> Place:
        load = converted_load(node)
        if load is not None:
            found = self._widened(node, self._storage[load.buffer], load.index[0])
            if found is not None:
                return found
        return super()._compute(node)

    def _widened(self, node: Expr, pointer: str, address: Index) -> Place | None:
        """Return the current element of an array that is converted before the loop."""
        found = self._run_of(address)
        if found is None:
            return None
        name = self._widened_array(found, self._first(pointer, address, found.run))
        return self._define(node, f"{name}[{found.run.place}]", INNERMOST)

    def _widened_array(self, found: OpenRun, memory: str) -> str:
        """Return the name of an array of the numbers of a run, which are converted before it."""
        name, run = self.fresh("widened"), found.run
        found.before.append(f"float {name}[{run.most}];")
        found.before.append(f"widen({memory}, {run.count}, {name});")
        return name

    def _half_from_kernel(self, node: Load, half: FlatNode) -> Place:
        if half.name in self.values and half.name in self._stored_later:
            return self.value(as_float(half.body))
        if half.name not in self.values and half.name in self.kept:
            found = self._widened(node, *self.kept[half.name])
            if found is not None:
                return found
        return super()._half_from_kernel(node, half)
