"""Writes a kernel as a C++ function, in one of three modes.

Row mode sweeps over the inner axes for each outer point, with the last axis in vector lanes. A row
stays in the cache between sweeps. Column mode, for reductions over a strided axis, processes LANES
neighbouring outer points at once, one per vector lane. Blocks are for loads that are contiguous
across rows: the elements of a block are transposed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.codegen.cpp.accumulator import accumulators_of
from tcdebug.compiler.codegen.cpp.branchless import without_branches
from tcdebug.compiler.codegen.cpp.column_sums import write_columns
from tcdebug.compiler.codegen.cpp.data_errors import may_report
from tcdebug.compiler.codegen.cpp.emit import CppEmitter
from tcdebug.compiler.codegen.cpp.float16_rows import ConvertingEmitter
from tcdebug.compiler.codegen.cpp.lanes import LANES
from tcdebug.compiler.codegen.cpp.sweep_loops import SweepWriter
from tcdebug.compiler.codegen.cpp.text import TYPES, index_text, loop
from tcdebug.compiler.codegen.cpp.transposed_loads import (
    COLUMNS,
    ROWS,
    BlockedAxis,
    Tiling,
    block_start,
    first_lane,
)
from tcdebug.compiler.codegen.cpp.variants import KernelVariant, innermost, threads_pragma
from tcdebug.compiler.codegen.kernels.column_values import with_column_values
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.kernels.half_values import HALVES
from tcdebug.compiler.codegen.kernels.scatter_loops import PIECE, scatter_loops
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.expr import IndexValue, walk

SLOTS = 64
"""Pieces of a split reduction. The number is fixed, so that sums do not depend on the number of
threads."""

ALIGNED = 32
"""The elements of which pieces are multiples. Vectors that lie in two cache lines take longer."""

LONGEST_COPIED = 4000
"""The most characters of the loops over lanes that are written twice. They take g++ about 0.1 s."""


@dataclass(frozen=True)
class KernelParameters:
    """The parameters of a kernel function, in order, and the C++ names of its buffers."""

    declarations: tuple[str, ...]
    storage: dict[str, str]


class CppKernelWriter:
    """Writes one kernel as a C++ function."""

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
        along = innermost(kernel, choices.lane)
        if choices.branchless and along is not None:
            kernel = without_branches(kernel, along)
        if choices.column_values and choices.lane is not None:
            kernel = with_column_values(kernel, choices.lane) or kernel
        self.kernel = kernel
        self.choices = choices
        self.arguments = arguments
        self.plan = segments(kernel)
        self.emit = (ConvertingEmitter if choices.float16_rows else CppEmitter)(storage)
        self.emit.halves = {n.name: n for n in kernel.nodes if n.dtype in HALVES}
        self.sweeps = SweepWriter(kernel, choices, storage, self.emit)
        self.lane = choices.lane
        self.outer = tuple(a for a in kernel.outer if a != self.lane)

    def write(self) -> str:
        """Return the C++ function."""
        name = f"{'TCD_NARROW ' if self.choices.narrow else ''}{self.kernel.name}"
        head = f'extern "C" int {name}({", ".join(self.arguments.declarations)})'
        function = self.emit.enter(head)
        function.add("int found = TCD_OK, *const status = &found;")
        if self.choices.split:
            self._split()
        elif self.choices.tiling is not None:
            self._tiled(self.choices.tiling)
        elif self.kernel.nodes[0].scatters:
            self._scatter()
        elif self.kernel.columns:
            vector = "#pragma omp simd" if self.choices.vectorize else ""
            pragmas = self._threads(1), vector
            write_columns(self.emit, self.kernel, self._point, pragmas)
        else:
            self._nest()
        function.add("return found;")
        self.emit.leave()
        comments = [f"// {n.name}: {n.origin.described}" for n in self.kernel.nodes]
        return "\n".join([*comments, function.text()])

    # -- the outer loops --------------------------------------------------------------------

    def _nest(self) -> None:
        """Write the loops over the outer axes, whose points threads share, and their body."""
        loops: list[tuple[str, tuple[Axis, ...]]] = [
            (loop(a, "0", index_text(a.size)), (a,)) for a in self.outer
        ]
        if self.lane is not None:
            size = index_text(self.lane.size)
            start = first_lane(self.lane)
            loops.append((loop(start, "0", size, LANES), (start,)))
        self._open(loops)
        if self.lane is None:
            self._point()
        else:
            self._block_of_lanes(self.lane)
        self._close(len(loops))

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
        if known is not None and (known < LANES or known % LANES == 0):
            self.emit.innermost.add(f"const int lanes = {min(known, LANES)};")
            self._point()
            return
        # threads share variables in a structure, to which references would lead
        captures = "=" if self.choices.parallelize else "&"
        block = self.emit.enter(
            f"const auto block = [{captures}](auto count) __attribute__((always_inline))"
        )
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

    def _open(self, loops: Sequence[tuple[str, tuple[Axis, ...]]]) -> None:
        """Open collapsed loops, whose points threads share."""
        for opening, axes in loops:
            self.emit.enter(opening, axes)
        self.emit.collapse(axis for _, axes in loops for axis in axes)

    def _threads(self, loops: int) -> str:
        return threads_pragma(self.kernel, self.choices, loops)

    def _close(self, loops: int) -> None:
        for position in reversed(range(loops)):
            self.emit.leave(self._threads(loops) if position == 0 else "")

    def _tiled(self, tiling: Tiling) -> None:
        """Write loops over blocks. Each block loads its tiles and then computes its points."""
        loops: list[tuple[str, tuple[Axis, ...]]] = [
            (loop(a, "0", index_text(a.size)), (a,)) for a in self.outer if a != tiling.across
        ]
        inner = self.kernel.inner[0]
        blocks = (BlockedAxis(tiling.across, ROWS), BlockedAxis(inner, COLUMNS))
        loops += [(b.loop, (block_start(b.axis),)) for b in blocks]
        self._open(loops)
        lines = self.emit.innermost
        for block in blocks:
            lines.add(f"const int64_t {block.high} = {block.end};")
        extents = ", ".join(f"{b.high} - {b.low}" for b in blocks)
        for tile in tiling.tiles:
            source = f"{self.arguments.storage[tile.buffer]} + {index_text(tile.address)}"
            lines.add(f"{TYPES[tile.dtype]} {tile.name}[{ROWS * COLUMNS}];")
            lines.add(f"load_tile({source}, {index_text(tile.stride)}, {extents}, {tile.name});")
        rows, columns = blocks
        self.emit.enter(loop(rows.axis, rows.low, rows.high), (rows.axis,))
        for segment in self.plan:
            self.sweeps.inner_loops(segment, (), columns.low, columns.high)
        self.emit.leave()
        self._close(len(loops))

    def _scatter(self) -> None:
        """Write a scatter: points run in order, except along axes with disjoint addresses."""
        (node,) = self.kernel.nodes
        plan = scatter_loops(self.kernel)
        self.emit.changing = {node.into}
        loops: list[tuple[str, tuple[Axis, ...]]] = [
            (loop(a, "0", index_text(a.size)), (a,)) for a in plan.shared
        ]
        low, high = "0", index_text(plan.lanes.size) if plan.lanes else ""
        if plan.pieces:
            loops = [(f"for (int64_t from = 0; from < {high}; from += {PIECE})", ())]
        self._open(loops)
        if plan.pieces:
            low, high = "from", f"index_min(from + {PIECE}, {high})"
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
            self.sweeps.inner_loops(segment, accumulators, "low", "high")
            for accumulator, (_, field, _) in states:
                variable = accumulator.variable(field)
                self.emit.innermost.add(f"slots_{variable}[slot] = {variable};")
            self.emit.leave(self._threads(1))
            self.emit.enter(f"for (int slot = 0; slot < {SLOTS}; ++slot)")
            for accumulator in accumulators:
                for line in accumulator.merge("[slot]"):
                    self.emit.innermost.add(line)
            self.emit.leave()
            self.sweeps.results(accumulators)
