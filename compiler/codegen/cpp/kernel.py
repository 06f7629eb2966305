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

from tcdebug.compiler.codegen.cpp.accumulator import (
    CHUNK,
    CppAccumulator,
    can_chunk,
    chunk_of,
    spread_of,
)
from tcdebug.compiler.codegen.cpp.emit import INNERMOST, CppEmitter, Place
from tcdebug.compiler.codegen.cpp.index_sets import Choice, Split
from tcdebug.compiler.codegen.cpp.scan_pieces import PIECE as PIECE_OF_SCAN
from tcdebug.compiler.codegen.cpp.scan_pieces import ScanPieces, scan_pieces
from tcdebug.compiler.codegen.cpp.scatter import PIECE, scatter_loops
from tcdebug.compiler.codegen.cpp.text import CHECKED, TYPES, CppIndex, element
from tcdebug.compiler.codegen.cpp.transposed_loads import COLUMNS, ROWS, Tiling, block_start
from tcdebug.compiler.codegen.cpp.variants import (
    EXPENSIVE,
    GRAIN,
    KernelVariant,
    crossing,
    points,
    work_per_point,
)
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.sweeps import Segment, segments
from tcdebug.compiler.ir.expr import (
    Call,
    Constant,
    Expr,
    IndexValue,
    Indirect,
    indices,
    loads,
    walk,
)
from tcdebug.compiler.ir.index import Axis, Index, product, render, to_index
from tcdebug.compiler.ir.operations import INTEGERS, SCANS

LANES = 64
"""Outer points that column mode processes together."""
SLOTS = 64
"""Pieces of a split reduction. The number is fixed, so that sums do not depend on the number of
threads."""


@dataclass(frozen=True)
class KernelParameters:
    """The parameters of a kernel function, in order, and the C++ names of its buffers."""

    declarations: tuple[str, ...]
    storage: dict[str, str]


@dataclass(frozen=True)
class _BlockedAxis:
    """The C++ variables of an axis that is divided into blocks."""

    axis: Axis
    step: int

    @property
    def low(self) -> str:
        return block_start(self.axis).name

    @property
    def high(self) -> str:
        return f"{self.axis.name}_high"

    @property
    def end(self) -> str:
        return f"index_min({self.low} + {self.step}, {_text(self.axis.size)})"

    @property
    def loop(self) -> str:
        """The loop over all blocks."""
        return _loop(block_start(self.axis), "0", _text(self.axis.size), self.step)


class CppKernelWriter:
    """Writes one kernel as a C++ function."""

    def __init__(
        self, kernel: FlatKernel, choices: KernelVariant, arguments: KernelParameters
    ) -> None:
        kernel = choices.tiling.kernel if choices.tiling else kernel
        tiles = {t.name: t.name for t in choices.tiling.tiles} if choices.tiling else {}
        self.kernel = kernel
        self.choices = choices
        self.arguments = arguments
        self.plan = segments(kernel)
        self.crossing = crossing(kernel)
        self.emit = CppEmitter({**arguments.storage, **tiles})
        self.made = {n.name: n for n in kernel.nodes}
        self.lane = choices.lane
        self.outer = tuple(a for a in kernel.outer if a != self.lane)
        self._misses = 0

    def write(self) -> str:
        """The C++ function."""
        head = f'extern "C" int {self.kernel.name}({", ".join(self.arguments.declarations)})'
        function = self.emit.enter(head)
        function.add("int found = TCD_OK, *const status = &found;")
        if self.choices.split:
            self._split()
        elif self.choices.tiling is not None:
            self._tiled(self.choices.tiling)
        elif self.kernel.nodes[0].scatters:
            self._scatter()
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
            (_loop(a, "0", _text(a.size)), (a,)) for a in self.outer
        ]
        if self.lane is not None:
            size = _text(self.lane.size)
            loops.append((f"for (int64_t from = 0; from < {size}; from += {LANES})", ()))
        self._open(loops)
        if self.lane is not None:
            size = _text(self.lane.size)
            self.emit.innermost.add(f"const int lanes = index_min({LANES}, {size} - from);")
        for segment in self.plan:
            self._segment(segment)
        self._close(len(loops))

    def _open(self, loops: Sequence[tuple[str, tuple[Axis, ...]]]) -> None:
        """Open collapsed loops, whose points threads share."""
        for opening, axes in loops:
            self.emit.enter(opening, axes)
        self.emit.collapse(axis for _, axes in loops for axis in axes)

    def _close(self, loops: int) -> None:
        for position in reversed(range(loops)):
            self.emit.leave(self._parallel(loops) if position == 0 else "")

    def _tiled(self, tiling: Tiling) -> None:
        """Write loops over blocks. Each block loads its tiles and then computes its points."""
        loops: list[tuple[str, tuple[Axis, ...]]] = [
            (_loop(a, "0", _text(a.size)), (a,)) for a in self.outer if a != tiling.across
        ]
        inner = self.kernel.inner[0]
        blocks = (_BlockedAxis(tiling.across, ROWS), _BlockedAxis(inner, COLUMNS))
        loops += [(b.loop, (block_start(b.axis),)) for b in blocks]
        self._open(loops)
        lines = self.emit.innermost
        for block in blocks:
            lines.add(f"const int64_t {block.high} = {block.end};")
        extents = ", ".join(f"{b.high} - {b.low}" for b in blocks)
        for tile in tiling.tiles:
            source = f"{self.arguments.storage[tile.buffer]} + {_text(tile.address)}"
            lines.add(f"{TYPES[tile.dtype]} {tile.name}[{ROWS * COLUMNS}];")
            lines.add(f"load_tile({source}, {_text(tile.stride)}, {extents}, {tile.name});")
        rows, columns = blocks
        self.emit.enter(_loop(rows.axis, rows.low, rows.high), (rows.axis,))
        for segment in self.plan:
            self._inner_loops(segment, (), columns.low, columns.high)
        self.emit.leave()
        self._close(len(loops))

    def _scatter(self) -> None:
        """Write a scatter: points run in order, except along axes with disjoint addresses."""
        (node,) = self.kernel.nodes
        plan = scatter_loops(self.kernel)
        self.emit.changing = {node.into}
        loops: list[tuple[str, tuple[Axis, ...]]] = [
            (_loop(a, "0", _text(a.size)), (a,)) for a in plan.shared
        ]
        low, high = "0", _text(plan.lanes.size) if plan.lanes else ""
        if plan.pieces:
            loops = [(f"for (int64_t from = 0; from < {high}; from += {PIECE})", ())]
        self._open(loops)
        if plan.pieces:
            low, high = "from", f"index_min(from + {PIECE}, {high})"
        for axis in plan.ordered:
            self.emit.enter(_loop(axis, "0", _text(axis.size)), (axis,))
        if plan.lanes:
            self.emit.enter(_loop(plan.lanes, low, high), (plan.lanes,))
        self._point(node)
        if plan.lanes:
            place = IndexValue(torch.int64, node.address)
            found = (e for body in (node.body, place) for e in walk(body))
            in_order = any(_may_report(e, plan.lanes) for e in found)
            self.emit.leave("#pragma omp simd" if self.choices.vectorize and not in_order else "")
        for _ in plan.ordered:
            self.emit.leave()
        self._close(len(loops))

    def _parallel(self, loops: int) -> str:
        if not self.choices.parallelize:
            return ""
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"#pragma omp parallel for{collapse} num_threads(threads) if ({self._large()})"

    def _large(self) -> str:
        return f"{_text(points(self.kernel))} > {GRAIN}"

    def _segment(self, segment: Segment) -> None:
        if segment.sweep:
            self._sweep(segment)
        elif self.lane is not None:
            self._lane_segment(segment)
        else:
            for node in segment.nodes:
                self._point(node)

    def _point(self, node: FlatNode) -> None:
        """Compute a node at the current point of the loops, and store it if needed."""
        value = self.emit.value(node.body)
        self.emit.values[node.name] = value
        if node.name in self.kernel.stored:
            self.emit.store(node, value)

    def _split(self) -> None:
        """Write a sweep of reductions to single values in SLOTS pieces that threads share."""
        for segment in self.plan:
            if not segment.sweep:
                self._segment(segment)
                continue
            accumulators = self._accumulators(segment)
            self._declare(accumulators)
            states = [(a, state) for a in accumulators for state in a.state]
            for accumulator, (ctype, field, _) in states:
                self.emit.innermost.add(f"{ctype} slots_{accumulator.variable(field)}[{SLOTS}];")
            size = _text(self.kernel.inner[0].size)
            self.emit.enter(f"for (int slot = 0; slot < {SLOTS}; ++slot)")
            self.emit.innermost.add(f"const int64_t piece = ({size} + {SLOTS - 1}) / {SLOTS};")
            self.emit.innermost.add("const int64_t low = slot * piece;")
            self.emit.innermost.add(f"const int64_t high = index_min(low + piece, {size});")
            self._declare(accumulators)
            self._inner_loops(segment, accumulators, "low", "high")
            for accumulator, (_, field, _) in states:
                variable = accumulator.variable(field)
                self.emit.innermost.add(f"slots_{variable}[slot] = {variable};")
            self.emit.leave(self._parallel(1))
            self.emit.enter(f"for (int slot = 0; slot < {SLOTS}; ++slot)")
            for accumulator in accumulators:
                for line in accumulator.merge("[slot]"):
                    self.emit.innermost.add(line)
            self.emit.leave()
            self._results(accumulators)

    # -- a sweep ----------------------------------------------------------------------------

    def _sweep(self, segment: Segment) -> None:
        accumulators = self._accumulators(segment)
        self._declare(accumulators)
        self._leave_earlier_sweeps(segment)
        self._declare_scratch(segment)
        self._inner_loops(segment, accumulators, "0", None)
        self._results([a for a in accumulators if self.made[a.name].reduces])

    def _accumulators(self, segment: Segment) -> list[CppAccumulator]:
        elements = product(a.size for a in self.kernel.inner).constant
        few = elements is not None and elements <= CHUNK
        spread = 0 if self.lane or self.kernel.scans else spread_of(self.kernel.inner)
        return [
            CppAccumulator(
                n.name,
                SCANS.get(n.kind, n.kind),
                n.body.dtype,
                in_one=few or n.scans,
                spread=spread if can_chunk(n.kind, n.body.dtype) else 0,
            )
            for n in segment.nodes
            if n.kind
        ]

    def _declare(self, accumulators: Sequence[CppAccumulator]) -> None:
        for accumulator in accumulators:
            for ctype, field, initial in accumulator.state:
                self._variable(ctype, accumulator.variable(field), initial)

    def _variable(self, ctype: str, name: str, initial: str) -> None:
        block = self.emit.innermost
        if self.lane is None:
            block.add(f"{ctype} {name} = {initial};")
        else:
            block.add(f"{ctype} {name}[{LANES}];")
            block.add(f"for (int l = 0; l < lanes; ++l) {name}[l] = {initial};")

    def _leave_earlier_sweeps(self, segment: Segment) -> None:
        """Forget values of earlier sweeps, which must be loaded or recomputed."""
        current = {n.name for n in segment.nodes}
        for node in self.kernel.nodes:
            if node.inside and not node.kind and node.name not in current:
                self.emit.values.pop(node.name, None)
                self.emit.recompute[node.name] = node
                if node.name in self.kernel.stored:
                    pointer = self.arguments.storage[node.name]
                    self.emit.kept[node.name] = (pointer, node.address)

    def _declare_scratch(self, segment: Segment) -> None:
        """Declare a row for each expensive value that a later sweep reads and no kernel stores."""
        if not self.choices.scratch:
            return
        for node in segment.nodes:
            if node.name in self.crossing:
                last = self.kernel.inner[-1]
                name = f"scratch_{node.name}"
                self.emit.innermost.add(f"{TYPES[node.dtype]} {name}[{_text(last.size)}];")
                self.emit.kept[node.name] = (name, to_index(last))

    def _inner_loops(
        self,
        segment: Segment,
        accumulators: Sequence[CppAccumulator],
        low: str,
        high: str | None,
    ) -> None:
        """Write the loops of a sweep. `low` and `high` are the bounds of the first one."""
        inner, depth = self.kernel.inner, len(self.emit.blocks)
        bounds = [("0", _text(a.size)) for a in inner] or [("0", "1")]
        if inner and high is not None:
            bounds[0] = (low, high)
        chunked = [a for a in accumulators if a.chunked]
        spread = any(a.spread for a in chunked)
        chunk = chunk_of(inner[:-1] if spread else inner) if chunked else None
        folds_at = self._declare_parts(chunked) if chunk is None else 0
        for position, axis in enumerate(inner):
            here = chunk is not None and position == chunk.position
            if here and chunk is not None and chunk.length > 1:
                bounds[position] = self._open_chunk(axis, chunk.length, bounds[position])
                folds_at = self._declare_parts(chunked)
            if position < len(inner) - 1:
                self.emit.enter(_loop(axis, *bounds[position]), (axis,))
            if here and not folds_at:
                folds_at = self._declare_parts(chunked)
        pieces = self._scan_pieces(segment)
        if pieces is not None:
            self._scan_in_pieces(pieces, accumulators, *bounds[-1])
        elif self.choices.index_sets is None:
            self._innermost_loop(segment, accumulators, *bounds[-1])
        else:
            self._parts(self.choices.index_sets)
        while True:
            if len(self.emit.blocks) == folds_at:
                for accumulator in chunked:
                    self._fold(accumulator)
            if len(self.emit.blocks) == depth:
                return
            self.emit.leave()

    def _parts(self, split: Split) -> None:
        """Write the parts of an innermost loop that was split by its conditions."""
        if isinstance(split, Choice):
            condition = self.emit.value(split.condition).text
            for opening, side in ((f"if ({condition})", split.chosen), ("else", split.other)):
                self.emit.enter(opening, conditional=True)
                self._parts(side)
                self.emit.leave()
            return
        for part in split:
            self._innermost_loop(Segment(True, part.nodes), (), str(part.low), str(part.high))

    def _open_chunk(self, axis: Axis, length: int, bounds: tuple[str, str]) -> tuple[str, str]:
        """Open a loop over pieces of an axis. Returns the bounds of the axis in a piece."""
        (start, end), name = bounds, axis.name
        self.emit.enter(
            f"for (int64_t {name}_low = {start}; {name}_low < {end}; {name}_low += {length})"
        )
        text = f"const int64_t {name}_high = index_min({name}_low + {length}, {end});"
        self.emit.innermost.add(text)
        return f"{name}_low", f"{name}_high"

    def _declare_parts(self, chunked: Sequence[CppAccumulator]) -> int:
        """Declare the partial sums of a chunk. Returns the depth at which the chunk ends."""
        for accumulator in chunked:
            if accumulator.part is None:
                continue
            ctype, field, initial = accumulator.part
            name, count = accumulator.variable(field), accumulator.spread
            if count:
                self.emit.innermost.add(f"{ctype} {name}[{count}];")
                self.emit.innermost.add(f"for (int l = 0; l < {count}; ++l) {name}[l] = {initial};")
            else:
                self._variable(ctype, name, initial)
        return len(self.emit.blocks)

    def _fold(self, accumulator: CppAccumulator) -> None:
        block = self.emit.innermost
        if accumulator.spread:
            block.add(f"#pragma omp simd reduction({accumulator.fold_clause})")
            loop = f"for (int l = 0; l < {accumulator.spread}; ++l)"
            block.add(f"{loop} {accumulator.close_chunk('[l]')}")
        elif self.lane is None:
            block.add(accumulator.close_chunk())
        else:
            block.add(f"for (int l = 0; l < lanes; ++l) {accumulator.close_chunk('[l]')}")

    def _innermost_loop(
        self, segment: Segment, accumulators: Sequence[CppAccumulator], low: str, high: str
    ) -> None:
        emit, last = self.emit, self.kernel.inner[-1:]
        state = {a.name: a for a in accumulators}
        missed = self._note_misses(segment.nodes, accumulators)
        for axis in last:
            emit.enter(_loop(axis, low, high), (axis,))
        if self.lane is not None:
            self._enter_lanes()
        for node in segment.nodes:
            if node.kind:
                value = emit.value(node.body).text
                at = "" if self.lane is None else "[l]"
                if state[node.name].spread:
                    at = f"[{last[0].name}]"
                for line in state[node.name].update(value, self._linear(), at):
                    emit.innermost.add(line)
                if node.scans:
                    self._running(node, state[node.name].result(at))
            else:
                self._point(node)
                self._keep(node)
        if self.lane is not None:
            self._leave_lanes(segment.nodes)
        for _ in last:
            emit.leave(self._simd(segment, accumulators))
        emit.missed = ""
        if missed:
            emit.innermost.add(f"if ({missed}) tcd_report(status, TCD_INDEX_OUT_OF_RANGE);")

    def _scan_pieces(self, segment: Segment) -> ScanPieces | None:
        """The loops of a sweep with scans, if its values are worth vectors."""
        if not self.choices.vectorize or not self.kernel.scans or self.lane is not None:
            return None
        if sum(s.sweep for s in self.plan) > 1 or self._reports(segment.nodes):
            return None
        return scan_pieces(segment.nodes)

    def _scan_in_pieces(
        self, pieces: ScanPieces, accumulators: Sequence[CppAccumulator], low: str, high: str
    ) -> None:
        """Write a scan in pieces: vectors before it, the scan in order, vectors after it."""
        emit, block = self.emit, _BlockedAxis(self.kernel.inner[-1], PIECE_OF_SCAN)
        last, start = block.axis, block_start(block.axis)
        emit.enter(_loop(start, low, high, block.step), (start,))
        emit.innermost.add(f"const int64_t {block.high} = {block.end};")
        nodes = (*pieces.before, *pieces.scans, *pieces.after)
        crossing = [n for n in nodes if n.name in pieces.crossing]
        for node in crossing:
            emit.innermost.add(f"{TYPES[node.dtype]} piece_{node.name}[{block.step}];")
        for loop in (pieces.before, pieces.scans, pieces.after):
            if not loop:
                continue
            emit.enter(_loop(last, block.low, block.high), (last,))
            for node in loop:
                if node.scans:
                    (state,) = (a for a in accumulators if a.name == node.name)
                    value = emit.value(node.body).text
                    emit.innermost.items += state.update(value, self._linear())
                    self._running(node, state.result())
                else:
                    self._point(node)
                if node in crossing:
                    where = _text(to_index(last) - to_index(start))
                    text = f"piece_{node.name}[{where}] = {emit.values[node.name].text};"
                    emit.innermost.add(text)
            emit.leave("" if loop is pieces.scans else "#pragma omp simd")
            for node in loop:
                del emit.values[node.name]
                pointer = f"piece_{node.name}"
                emit.kept[node.name] = (pointer, to_index(last) - to_index(start))
        emit.leave()

    def _note_misses(
        self, nodes: Sequence[FlatNode], accumulators: Sequence[CppAccumulator]
    ) -> str:
        """Declare what notes an index out of range in the innermost loop; empty for none.

        Without it, a loop that may find one runs in order. Vectors pay only if there is more to do
        than to load, since a vector of elements from anywhere is loaded one by one.
        """
        if not self.choices.vectorize or not self.kernel.inner or self._divides(nodes):
            return ""
        if any(a.by_place for a in accumulators) or self.kernel.scans or not self._reports(nodes):
            return ""
        if work_per_point(nodes) < EXPENSIVE:
            return ""
        self._misses += 1
        self.emit.missed = f"missed{self._misses}"
        self.emit.innermost.add(f"int {self.emit.missed} = 0;")
        return self.emit.missed

    def _running(self, node: FlatNode, state: str) -> None:
        """The value of a scan at the current point of the loops."""
        name = f"running_{node.name}"
        self.emit.innermost.add(f"const {TYPES[node.dtype]} {name} = {state};")
        self.emit.values[node.name] = Place(name, INNERMOST)
        if node.name in self.kernel.stored:
            self.emit.store(node, self.emit.values[node.name])

    def _keep(self, node: FlatNode) -> None:
        pointer, address = self.emit.kept.get(node.name, ("", None))
        if address is not None and pointer.startswith("scratch_"):
            value = self.emit.values[node.name].text
            self.emit.innermost.add(f"{pointer}[{_text(address)}] = {value};")

    def _linear(self) -> str:
        """The position of the current point in row-major order of the inner axes."""
        value = to_index(0)
        for axis in self.kernel.inner:
            value = value * axis.size + to_index(axis)
        return _text(value)

    def _simd(self, segment: Segment, accumulators: Sequence[CppAccumulator]) -> str:
        """The pragma of the innermost loop; empty if it must run in order."""
        if self.lane is not None:
            return ""
        in_order = any(a.by_place for a in accumulators) or self.kernel.scans
        in_order |= self._reports(segment.nodes) and not self.emit.missed
        noted = f" reduction(|:{self.emit.missed})" if self.emit.missed else ""
        alone = not self.kernel.accumulates and not self.outer
        if alone and self.choices.parallelize:
            simd = " simd" if self.choices.vectorize and not in_order else ""
            start = f"#pragma omp parallel for{simd}{noted}"
            return f"{start} num_threads(threads) if ({self._large()})"
        if in_order or not self.choices.vectorize:
            return ""
        clauses = [c for a in accumulators for c in a.clauses]
        return "#pragma omp simd" + noted + "".join(f" reduction({c})" for c in clauses)

    def _divides(self, nodes: Sequence[FlatNode]) -> bool:
        """Whether the innermost loop may find a zero divisor."""
        return any(_may_divide_by_zero(expr) for node in nodes for expr in walk(node.body))

    def _reports(self, nodes: Sequence[FlatNode]) -> bool:
        """Whether the innermost loop may find an error in the data."""
        last = self.lane or (self.kernel.inner[-1] if self.kernel.inner else None)
        return any(_may_report(expr, last) for node in nodes for expr in walk(node.body))

    def _results(self, accumulators: Sequence[CppAccumulator]) -> None:
        if not accumulators:
            return
        if self.lane is not None:
            self._lane_results(accumulators)
            return
        depth = len(self.emit.blocks) - 1
        for accumulator in accumulators:
            node = self.made[accumulator.name]
            name = f"result_{node.name}"
            text = accumulator.result()
            self.emit.innermost.add(f"const {TYPES[node.dtype]} {name} = {text};")
            self.emit.values[node.name] = Place(name, depth)
            if node.name in self.kernel.stored:
                self.emit.store(node, self.emit.values[node.name])

    # -- column mode ------------------------------------------------------------------------

    def _enter_lanes(self) -> None:
        assert self.lane is not None
        block = self.emit.enter("for (int l = 0; l < lanes; ++l)", (self.lane,))
        block.add(f"const int64_t {self.lane.name} = from + l;")

    def _leave_lanes(self, nodes: Sequence[FlatNode]) -> None:
        missed = self.emit.missed
        in_order = self._reports(nodes) and not missed
        in_order |= any(n.kind.startswith("arg") for n in nodes)
        noted = f" reduction(|:{missed})" if missed else ""
        simd = self.choices.vectorize and not in_order
        self.emit.leave(f"#pragma omp simd{noted}" if simd else "")

    def _lane_results(self, accumulators: Sequence[CppAccumulator]) -> None:
        nodes = [self.made[a.name] for a in accumulators]
        self._declare_kept(nodes)
        self._enter_lanes()
        for accumulator, node in zip(accumulators, nodes, strict=True):
            name = f"kept_{node.name}[l]"
            self.emit.innermost.add(f"{name} = {accumulator.result('[l]')};")
            kept = Place(element(name, node.dtype), INNERMOST)
            self.emit.values[node.name] = kept
            if node.name in self.kernel.stored:
                self.emit.store(node, kept)
        self._leave_lanes(())

    def _lane_segment(self, segment: Segment) -> None:
        self._declare_kept(segment.nodes)
        self._enter_lanes()
        for node in segment.nodes:
            self._point(node)
            self.emit.innermost.add(f"kept_{node.name}[l] = {self.emit.values[node.name].text};")
        self._leave_lanes(segment.nodes)
        for node in segment.nodes:
            kept = element(f"kept_{node.name}[l]", node.dtype)
            self.emit.values[node.name] = Place(kept, INNERMOST)

    def _declare_kept(self, nodes: Sequence[FlatNode]) -> None:
        for node in nodes:
            self.emit.innermost.add(f"{TYPES[node.dtype]} kept_{node.name}[{LANES}];")


def _may_report(expr: Expr, last: Axis | None) -> bool:
    """Whether evaluating an expression along an axis may find a bad index or a zero divisor."""
    return _may_divide_by_zero(expr) or any(
        isinstance(atom, Indirect) and atom.checked and _follows(atom.expr, last)
        for index in indices(expr)
        for atom in index.atoms
    )


def _may_divide_by_zero(expr: Expr) -> bool:
    if not (isinstance(expr, Call) and expr.name in CHECKED and expr.dtype in INTEGERS):
        return False
    divisor = expr.args[1]
    return not (isinstance(divisor, Constant) and divisor.value)


def _follows(expr: Expr, last: Axis | None) -> bool:
    """Whether an expression may vary along an axis. Values of the kernel itself may."""
    return last in expr.axes or any(not load.index for load in loads(expr))


def _loop(axis: Axis, low: str, high: str, step: int = 1) -> str:
    name = axis.name
    forward = f"++{name}" if step == 1 else f"{name} += {step}"
    return f"for (int64_t {name} = {low}; {name} < {high}; {forward})"


def _text(index: Index) -> str:
    return render(index, CppIndex())
