"""Writes a kernel as a C++ function, in one of three modes.

Row mode sweeps over the inner axes for each outer point, with the last axis in vector lanes. A row
stays in the cache between sweeps. Column mode, for reductions over a strided axis, processes LANES
neighbouring outer points at once, one per vector lane. Blocks are for loads that are contiguous
across rows: the elements of a block are transposed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.cpp.accumulator import accumulators_of
from tcdebug.compiler.codegen.cpp.branchless import without_branches
from tcdebug.compiler.codegen.cpp.column_sums import write_columns
from tcdebug.compiler.codegen.cpp.data_errors import may_report
from tcdebug.compiler.codegen.cpp.emitters.conversions import conversions_of
from tcdebug.compiler.codegen.cpp.emitters.emit import CppEmitter
from tcdebug.compiler.codegen.cpp.emitters.float16_rows import ConvertingEmitter
from tcdebug.compiler.codegen.cpp.emitters.reversed_rows import ReversingEmitter
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, index_text, loop
from tcdebug.compiler.codegen.cpp.lanes import LANES
from tcdebug.compiler.codegen.cpp.outer_loops import OuterLoop
from tcdebug.compiler.codegen.cpp.sweep_loops import SweepWriter
from tcdebug.compiler.codegen.cpp.transposed_loads import (
    ROWS,
    BlockedAxis,
    Tiling,
    TransposedResults,
    block_start,
    first_lane,
)
from tcdebug.compiler.codegen.cpp.variants import KernelVariant, innermost, is_large, threads_pragma
from tcdebug.compiler.codegen.kernels.column_values import with_column_values
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.scatter_loops import PIECE, scatter_loops
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import IndexValue, walk
from tcdebug.compiler.ir.operations import HALVES

SLOTS = 64
"""Pieces of a split reduction. The number is fixed, so that sums do not depend on the number of
threads."""

ALIGNED = 32
"""The elements of which pieces are multiples. Vectors that lie in two cache lines take longer."""

FEWEST_SHARED = 256
"""The iterations of outer loops that are enough to be divided among threads."""

LONGEST_COPIED = 4000
"""The most characters of the loops over lanes that are written twice. They take g++ about 0.1 s."""


@dataclass(frozen=True)
class KernelParameters:
    """The parameters of a kernel function, in order, and the C++ names of its buffers."""

    declarations: tuple[str, ...]
    storage: dict[str, str]


def _emitter(choices: KernelVariant, storage: Mapping[str, str]) -> CppEmitter:
    if choices.reversed_rows:
        return ReversingEmitter(storage, converts=choices.float16_rows)
    return ConvertingEmitter(storage) if choices.float16_rows else CppEmitter(storage)


class CppKernelWriter:
    """Writes one kernel as a C++ function.

    If threads share its outer loops, the function has parts, each of which is a call of a function
    of its own. g++ forgets within a parallel region that pointers do not overlap, which can double
    the time of a loop, also in one thread.
    """

    def __init__(
        self, kernel: FlatKernel, choices: KernelVariant, arguments: KernelParameters
    ) -> None:
        storage = dict(arguments.storage)
        if choices.tiling:
            kernel = choices.tiling.kernel
            storage |= {t.name: t.name for t in choices.tiling.tiles}
        if choices.transposed:
            kernel = choices.transposed.kernel
            storage |= {t.buffer if t.stored else t.name: t.name for t in choices.transposed.tiles}
        if choices.results:
            kernel = choices.results.kernel
            storage |= {t.buffer: t.name for t in choices.results.tiles}
        along = innermost(kernel, choices.lane)
        if choices.branchless and along is not None:
            kernel = without_branches(kernel, along)
        if choices.column_values and choices.lane is not None:
            kernel = with_column_values(kernel, choices.lane) or kernel
        self.kernel = kernel
        self.choices = choices
        self.arguments = arguments
        self.plan = segments(kernel)
        self.emit = _emitter(choices, storage)
        self.emit.conversions = conversions_of(kernel)
        self.emit.halves = {n.name: n for n in kernel.nodes if n.dtype in HALVES}
        self.sweeps = SweepWriter(kernel, choices, storage, self.emit)
        self.lane = choices.lane
        self.outer = tuple(a for a in kernel.outer if a != self.lane)
        self.has_parts = False

    def write(self) -> str:
        """Return the C++ function."""
        narrow = "TCD_NARROW " if self.choices.narrow else ""
        head = f"{narrow}{self.kernel.name}({', '.join(self.arguments.declarations)})"
        function = self.emit.enter(f'extern "C" int {head}')
        function.add("int found = TCD_OK, *const status = &found;")
        if self.choices.split:
            self._split()
        elif self.choices.tiling is not None:
            self._tiled(self.choices.tiling)
        elif self.kernel.nodes[0].scatters:
            self._scatter()
        elif self.kernel.columns:
            vector = "#pragma omp simd" if self.choices.vectorize else ""
            pragmas = threads_pragma(self.kernel, self.choices), vector
            write_columns(self.emit, self.kernel, self._point, pragmas)
        else:
            self._nest()
        function.add("return found;")
        self.emit.leave()
        comments = [f"// {n.name}: {n.origin.described}" for n in self.kernel.nodes]
        if not self.has_parts:
            return "\n".join([*comments, function.text()])
        function.opening = f"static __attribute__((noinline)) int {narrow}{self._part_head()}"
        return "\n".join([*comments, function.text(), self._shared_function(head)])

    def _part_head(self) -> str:
        declarations = (*self.arguments.declarations, "int64_t part", "int64_t parts")
        return f"{self.kernel.name}_part({', '.join(declarations)})"

    def _shared_function(self, head: str) -> str:
        """Return the function whose parts threads share."""
        given = ", ".join(d.rpartition(" ")[2] for d in self.arguments.declarations)
        call = f"{self.kernel.name}_part({given}, "
        return f"""\
extern "C" int {head} {{
  if (threads < 2 || !({is_large(self.kernel)})) return {call}0, 1);
  int found = TCD_OK;
#pragma omp parallel num_threads(threads)
  {{
    const int status = {call}omp_get_thread_num(), omp_get_num_threads());
    if (status != TCD_OK) tcd_report(&found, status);
  }}
  return found;
}}"""

    # -- the outer loops --------------------------------------------------------------------

    def _nest(self) -> None:
        """Write the loops over the outer axes, whose points threads share, and their body."""
        if self.choices.results is not None:
            self._blocks_of_results(self.choices.results)
            return
        loops = [OuterLoop(a) for a in self.outer]
        if self.lane is None:
            self._open(loops)
            self._point()
            self._close(len(loops))
        else:
            self._open_lanes(loops, self.lane)
            self._block_of_lanes(self.lane)
            self._close(len(loops) + 1)

    def _open_lanes(self, loops: Sequence[OuterLoop], lane: Axis) -> None:
        """Open loops, and within them one over blocks of lanes."""
        first = first_lane(lane)
        within = OuterLoop(Axis("block", lane.size) if self._overlaps(lane) else first, LANES)
        self._open([*loops, within])
        if within.axis != first:
            self.emit.define(first, f"index_min(block, {index_text(lane.size)} - {LANES})")

    def _overlaps(self, lane: Axis) -> bool:
        """Return whether the last block of lanes begins within the one before.

        All blocks then have as many lanes. Some points are computed twice, which must give the same
        numbers.
        """
        known = lane.size.constant
        again = not any(n.into or n.scatters or n.across for n in self.kernel.nodes)
        return known is not None and known > LANES and known % LANES != 0 and again

    def _blocks_of_results(self, results: TransposedResults) -> None:
        """Write the loops over blocks of lanes and of an outer axis, and store each block."""
        assert self.lane is not None
        block = BlockedAxis(results.across, ROWS)
        loops = [OuterLoop(a) for a in self.outer if a != block.axis]
        loops.append(OuterLoop(block_start(block.axis), ROWS))
        self._open_lanes(loops, self.lane)
        lines = self.emit.innermost
        lines.add(f"const int64_t {block.high} = {block.end};")
        for tile in results.tiles:
            lines.add(f"{TYPES[tile.dtype]} {tile.name}[{ROWS * LANES}];")
        self.emit.enter(loop(block.axis, block.low, block.high), (block.axis,))
        self._block_of_lanes(self.lane)
        self.emit.leave()
        lanes = f"index_min({index_text(self.lane.size)} - from, {LANES})"
        for tile in results.tiles:
            place = f"{self.arguments.storage[tile.buffer]} + {index_text(tile.address)}"
            rows = f"{tile.name}, {LANES}, {block.high} - {block.low}, {lanes}"
            lines.add(f"transpose({rows}, {place}, {index_text(tile.stride)});")
        self._close(len(loops) + 1)

    def _point(self) -> None:
        """Write what is done at a point of the outer loops, or in a block of lanes."""
        self._transpose(stored=False)
        for segment in self.plan:
            self.sweeps.segment(segment)
        self._transpose(stored=True)

    def _block_of_lanes(self, lane: Axis) -> None:
        """Write the loops of a block of lanes.

        g++ keeps accumulators in registers if the number of lanes is a constant. Unless all blocks
        have as many, a short kernel gets a copy of its loops for whole blocks.
        """
        known, size = lane.size.constant, index_text(lane.size)
        if known is not None and (known < LANES or known % LANES == 0 or self._overlaps(lane)):
            self.emit.innermost.add(f"const int lanes = {min(known, LANES)};")
            self._point()
            return
        block = self.emit.enter("const auto block = [&](auto count) __attribute__((always_inline))")
        block.add("const int lanes = count;")
        self._point()
        self.emit.leave()
        if len(block.text()) > LONGEST_COPIED:
            block.opening = ""
            block.items[0] = f"const int lanes = index_min({LANES}, {size} - from);"
            return
        block.closing = "};"
        self.emit.innermost.add(f"if ({size} - from >= {LANES}) block(Constant<{LANES}>());")
        self.emit.innermost.add(f"else block((int)({size} - from));")

    def _transpose(self, *, stored: bool) -> None:
        """Declare the arrays of transposed rows and fill them, or store them at the end."""
        transposed, lines = self.choices.transposed, self.emit.innermost
        for tile in transposed.tiles if transposed else ():
            assert transposed is not None
            name, stride = tile.name, index_text(tile.stride)
            place = f"{self.arguments.storage[tile.buffer]} + {index_text(tile.address)}"
            if not stored:
                lines.add(f"{TYPES[tile.dtype]} {name}[{transposed.size}];")
            if stored and tile.stored:
                arguments = f"{name}, {LANES}, {transposed.length}, lanes, {place}, {stride}"
                lines.add(f"transpose({arguments});")
            elif not stored and not tile.stored:
                arguments = f"{place}, {stride}, lanes, {transposed.length}, {name}, {LANES}"
                lines.add(f"transpose<{tile.step}>({arguments});")

    def _open(self, loops: Sequence[OuterLoop]) -> None:
        """Open the outer loops. The first ones are divided into parts, if threads share them.

        A part is a range of the iterations of the divided loops, which count as one loop.
        """
        divided = loops[: self._divided(loops)]
        if divided:
            self.has_parts = True
            total, lines = " * ".join(o.count for o in divided), self.emit.innermost
            lines.add(f"const int64_t first0 = {total} * part / parts;")
            lines.add(f"const int64_t last0 = {total} * (part + 1) / parts;")
            lines.add("if (first0 == last0) return found;")
        for place, outer in enumerate(loops):
            if place < len(divided):
                self._open_divided(outer, place, [o.count for o in divided[place + 1 :]])
            else:
                self.emit.enter(outer.whole, (outer.axis,))

    def _open_divided(self, outer: OuterLoop, place: int, inside: Sequence[str]) -> None:
        """Open a loop over a range of iterations; `inside` counts those of the loops within it."""
        first, last, size = (f"{name}{place}" for name in ("first", "last", "size"))
        if not inside:
            self.emit.enter(outer.part(first, last), (outer.axis,))
            return
        before = f"{outer.iteration} * {size}"
        self.emit.innermost.add(f"const int64_t {size} = {' * '.join(inside)};")
        self.emit.innermost.add(f"const int64_t begin{place} = {first} / {size};")
        self.emit.innermost.add(f"const int64_t end{place} = ({last} + {size} - 1) / {size};")
        self.emit.enter(outer.part(f"begin{place}", f"end{place}"), (outer.axis,))
        lines = self.emit.innermost
        lines.add(f"const int64_t first{place + 1} = index_max({first} - {before}, 0);")
        lines.add(f"const int64_t last{place + 1} = index_min({last} - {before}, {size});")

    def _divided(self, loops: Sequence[OuterLoop]) -> int:
        """Return how many of the outer loops are divided among threads."""
        if not self.choices.parallelize:
            return 0
        points = 1
        for place, outer in enumerate(loops):
            points *= -(-estimate(outer.axis.size) // outer.step)
            if points >= FEWEST_SHARED:
                return place + 1
        return len(loops)

    def _close(self, loops: int) -> None:
        for _ in range(loops):
            self.emit.leave()

    def _tiled(self, tiling: Tiling) -> None:
        """Write loops over blocks. Each block loads its tiles and then computes its points."""
        loops = [OuterLoop(a) for a in self.outer if a != tiling.across]
        inner = self.kernel.inner[0]
        blocks = (BlockedAxis(tiling.across, tiling.rows), BlockedAxis(inner, tiling.columns))
        longest_inside = sorted(blocks, key=lambda block: block.step)
        loops += [OuterLoop(block_start(b.axis), b.step) for b in longest_inside]
        self._open(loops)
        lines = self.emit.innermost
        for block in blocks:
            lines.add(f"const int64_t {block.high} = {block.end};")
        extents = ", ".join(f"{b.high} - {b.low}" for b in blocks)
        for tile in tiling.tiles:
            source = f"{self.arguments.storage[tile.buffer]} + {index_text(tile.address)}"
            lines.add(f"{TYPES[tile.dtype]} {tile.name}[{tiling.rows * tiling.columns}];")
            stride, columns = index_text(tile.stride), tiling.columns
            lines.add(f"load_tile<{columns}>({source}, {stride}, {extents}, {tile.name});")
        row, column = blocks
        self.emit.enter(loop(row.axis, row.low, row.high), (row.axis,))
        for segment in self.plan:
            self.sweeps.inner_loops((), segment, column.low, column.high)
        self.emit.leave()
        self._close(len(loops))

    def _scatter(self) -> None:
        """Write a scatter: points run in order, except along axes with disjoint addresses."""
        (node,) = self.kernel.nodes
        plan = scatter_loops(self.kernel)
        self.emit.changing = {node.into}
        loops = [OuterLoop(a) for a in plan.shared]
        low, high = "0", index_text(plan.lanes.size) if plan.lanes else ""
        if plan.pieces and plan.lanes:
            loops = [OuterLoop(first_lane(plan.lanes), PIECE)]
            low, high = "from", f"index_min(from + {PIECE}, {high})"
        self._open(loops)
        for axis in plan.ordered:
            self.emit.enter(loop(axis, "0", index_text(axis.size)), (axis,))
        if plan.lanes:
            self.emit.enter(loop(plan.lanes, low, high), (plan.lanes,))
        self.sweeps.point(node)
        if plan.lanes:
            place = IndexValue(torch.int64, node.address)
            found = (e for body in (node.body, place) for e in walk(body))
            in_order = any(may_report(e, plan.lanes) for e in found)
            self.emit.leave("#pragma omp simd" if self.choices.vectorize and not in_order else "")
        for _ in plan.ordered:
            self.emit.leave()
        self._close(len(loops))

    def _split(self) -> None:
        """Write a sweep of reductions to single values in SLOTS pieces that threads share."""
        for segment in self.plan:
            if not segment.sweep:
                self.sweeps.segment(segment)
                continue
            accumulators = accumulators_of(self.kernel, segment.nodes, None)
            self.sweeps.declare(accumulators)
            states = [(a, state) for a in accumulators for state in a.state]
            for accumulator, (ctype, field, _) in states:
                self.emit.innermost.add(f"{ctype} slots_{accumulator.variable(field)}[{SLOTS}];")
            size = index_text(self.kernel.inner[0].size)
            self.emit.enter(f"for (int slot = 0; slot < {SLOTS}; ++slot)")
            whole = f"({size} + {SLOTS * ALIGNED - 1}) / {SLOTS * ALIGNED} * {ALIGNED}"
            self.emit.innermost.add(f"const int64_t piece = {whole};")
            self.emit.innermost.add("const int64_t low = slot * piece;")
            self.emit.innermost.add(f"const int64_t high = index_min(low + piece, {size});")
            self.sweeps.declare(accumulators)
            self.sweeps.inner_loops(accumulators, segment, "low", "high")
            for accumulator, (_, field, _) in states:
                variable = accumulator.variable(field)
                self.emit.innermost.add(f"slots_{variable}[slot] = {variable};")
            self.emit.leave(threads_pragma(self.kernel, self.choices))
            self.emit.enter(f"for (int slot = 0; slot < {SLOTS}; ++slot)")
            for accumulator in accumulators:
                for line in accumulator.merge("[slot]"):
                    self.emit.innermost.add(line)
            self.emit.leave()
            self.sweeps.results(accumulators)
