"""Writes the sweeps of a kernel over its inner axes, along rows or across them in lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tcdebug.compiler.codegen.cpp.accumulator import CppAccumulator, accumulators_of, chunk_of
from tcdebug.compiler.codegen.cpp.column_sums import add_to_column
from tcdebug.compiler.codegen.cpp.data_errors import may_divide, may_report
from tcdebug.compiler.codegen.cpp.emitters.emit import INNERMOST, CppEmitter, Place
from tcdebug.compiler.codegen.cpp.emitters.float16_rows import enter_runs
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES, element, index_text, loop
from tcdebug.compiler.codegen.cpp.index_sets import write_parts
from tcdebug.compiler.codegen.cpp.lanes import LANES, Lanes, block_of, declare_points, write_blocks
from tcdebug.compiler.codegen.cpp.scan_pieces import (
    PIECE,
    ScanPieces,
    scan_pieces,
    write_pieces,
)
from tcdebug.compiler.codegen.cpp.sweep_parts import write_sweep_parts
from tcdebug.compiler.codegen.cpp.transposed_loads import BlockedAxis, first_lane
from tcdebug.compiler.codegen.cpp.variants import (
    EXPENSIVE,
    KernelVariant,
    crossing,
    innermost,
    is_large,
    work_per_point,
)
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode, row_major
from tcdebug.compiler.codegen.kernels.shared_states import owners_first, sharing
from tcdebug.compiler.codegen.kernels.sweeps import Segment, of_other_sweeps, segments
from tcdebug.compiler.ir.arithmetic.index import to_index
from tcdebug.compiler.ir.expr import walk


class SweepWriter:
    """Writes the loops over the inner axes of a kernel, and what is done once per outer point."""

    def __init__(
        self,
        kernel: FlatKernel,
        choices: KernelVariant,
        storage: Mapping[str, str],
        emit: CppEmitter,
    ) -> None:
        self.kernel = kernel
        self.choices = choices
        self.storage = storage
        self.emit = emit
        self.plan = segments(kernel)
        self.crossing = crossing(kernel, 1 if choices.lane is None else LANES)
        self.made = {n.name: n for n in kernel.nodes}
        self.lane = choices.lane
        self.lanes = Lanes(choices.lane, choices.rows, emit, kernel)
        self._points = 0
        self._owner: dict[str, str] = {}

    def segment(self, segment: Segment) -> None:
        """Write a sweep, or what is done once for each outer point."""
        if segment.sweep:
            self.sweep(segment)
        elif self.lane is not None:
            self._lane_segment(segment)
        else:
            for node in segment.nodes:
                self.point(node)

    def point(self, node: FlatNode) -> None:
        """Compute a node at the current point of the loops, and store it if needed."""
        value = self.emit.value(node.body)
        self.emit.values[node.name] = value
        if node.name in self.kernel.stored:
            self.emit.store(node, value)

    def sweep(self, segment: Segment) -> None:
        """Write a sweep over the inner axes, and the results of its reductions."""
        segment = Segment(segment.sweep, owners_first(segment.nodes))
        self._owner = sharing(segment.nodes)
        own = [n for n in segment.nodes if n.name not in self._owner]
        accumulators = accumulators_of(self.kernel, own, self.lane)
        self.declare(accumulators)
        self._leave_earlier_sweeps(segment)
        self._declare_scratch(segment)
        write, cut = partial(self.inner_loops, accumulators), self.choices.cut_sweeps
        if not (cut and write_sweep_parts(self.emit, self.kernel, segment, write)):
            write(segment, "0", None)
        self.results([a for a in accumulators if self.made[a.name].reduces])

    def declare(self, accumulators: Sequence[CppAccumulator]) -> None:
        """Declare the states of reductions, with their initial values."""
        for accumulator in accumulators:
            for ctype, field, initial in accumulator.state:
                self._variable(ctype, accumulator.variable(field), initial)

    def _variable(self, ctype: str, name: str, initial: str) -> None:
        block = self.emit.innermost
        if self.lane is None:
            block.add(f"{ctype} {name} = {initial};")
        else:
            block.add(f"{ctype} {name}[{self.lanes.width}];")
            block.add(f"for (int l = 0; l < {self.lanes.count}; ++l) {name}[l] = {initial};")

    def _leave_earlier_sweeps(self, segment: Segment) -> None:
        """Forget values of earlier sweeps, which must be loaded or recomputed."""
        for node in of_other_sweeps(self.kernel, segment):
            self.emit.values.pop(node.name, None)
            self.emit.recompute[node.name] = node
            if node.name in self.kernel.stored:
                pointer = self.storage[node.name]
                self.emit.kept[node.name] = (pointer, node.address)

    def _declare_scratch(self, segment: Segment) -> None:
        """Declare a row for each expensive value that a later sweep reads and no kernel stores."""
        if not self.choices.scratch:
            return
        last = self.kernel.inner[-1]
        size, place = last.size, to_index(last)
        if self.lane is not None:
            size, place = (
                size * LANES,
                place * LANES + to_index(self.lane) - to_index(first_lane(self.lane)),
            )
        for node in segment.nodes:
            if node.name in self.crossing:
                name = f"scratch_{node.name}"
                self.emit.innermost.add(f"{TYPES[node.dtype]} {name}[{index_text(size)}];")
                self.emit.kept[node.name] = (name, place)

    def inner_loops(
        self, accumulators: Sequence[CppAccumulator], segment: Segment, low: str, high: str | None
    ) -> None:
        """Write the loops of a sweep. `low` and `high` are the bounds of the first one."""
        inner, depth = self.kernel.inner, len(self.emit.blocks)
        bounds = [("0", index_text(a.size)) for a in inner] or [("0", "1")]
        if inner and high is not None:
            bounds[0] = (low, high)
        whole = self.choices.index_sets is None and self.choices.tiling is None
        self._points = block_of(self.kernel, segment) if self.choices.blocks and whole else 0
        chunked = [a for a in accumulators if a.chunked]
        in_lanes = [a for a in accumulators if self._points and not a.chunked]
        declare_points(self.emit, in_lanes, self._points)
        spread = any(a.spread for a in chunked)
        chunk = chunk_of(inner[:-1] if spread else inner, bounds[0]) if chunked else None
        folds_at = self._declare_parts(chunked) if chunk is None else 0
        for position, axis in enumerate(inner):
            here = chunk is not None and position == chunk.position
            if here and chunk is not None and chunk.length > 1:
                block = BlockedAxis(axis, chunk.length, *bounds[position])
                bounds[position] = block.enter(self.emit)
                folds_at = self._declare_parts(chunked)
            if position < len(inner) - 1:
                self.emit.enter(loop(axis, *bounds[position]), (axis,))
            if here and not folds_at:
                folds_at = self._declare_parts(chunked)
        pieces = self._scan_pieces(segment)
        if pieces is not None:
            block = BlockedAxis(inner[-1], PIECE)
            states = {a.name: a for a in accumulators}
            write_pieces(self.emit, pieces, block, bounds[-1], lambda n: self._state(n, states))
        elif self.choices.index_sets is None:
            self._innermost_loop(segment.nodes, *bounds[-1], accumulators)
        else:
            write_parts(self.emit, self.choices.index_sets, self._innermost_loop)
        while True:
            if len(self.emit.blocks) == folds_at:
                for accumulator in chunked:
                    self.lanes.fold(accumulator, self._points)
            if len(self.emit.blocks) == depth:
                for accumulator in in_lanes:
                    self.lanes.fold(accumulator, self._points)
                return
            self.emit.leave()

    def _declare_parts(self, chunked: Sequence[CppAccumulator]) -> int:
        """Declare the partial sums of a chunk. Returns the depth at which the chunk ends."""
        declare_points(self.emit, chunked, self._points)
        for accumulator in () if self._points else chunked:
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

    def _innermost_loop(
        self,
        nodes: Sequence[FlatNode],
        low: str,
        high: str,
        accumulators: Sequence[CppAccumulator] = (),
    ) -> None:
        if self.choices.rows > 1:
            step, whole = self.choices.rows, self.emit.fresh("whole")
            steps = f"({high} - {low}) / {step} * {step}"
            self.emit.innermost.add(f"const int64_t {whole} = {low} + {steps};")
            self._loop_of_points(nodes, accumulators, low, whole, step)
            self._loop_of_points(nodes, accumulators, whole, high)
        else:
            self._loop_of_points(nodes, accumulators, low, high)

    def _loop_of_points(
        self,
        nodes: Sequence[FlatNode],
        accumulators: Sequence[CppAccumulator],
        low: str,
        high: str,
        rows: int = 1,
    ) -> None:
        """Write an innermost loop, of which each step processes one or several rows in lanes."""
        emit, last = self.emit, self.kernel.inner[-1:]
        if self._points:
            self._blocks_of_points(nodes, accumulators, low, high)
            return
        state = {a.name: a for a in accumulators}
        missed = self._note_misses(nodes, accumulators)
        pragma = self._simd(nodes, accumulators)
        threads, run = "", None
        if self.choices.in_runs and self.lane is None and "simd" in pragma and not missed:
            groups, bounds = not self.choices.reversed_rows, (low, high)
            run, threads, pragma = enter_runs(emit, self.kernel, bounds, pragma, groups=groups)
            low, high = index_text(run.first), run.high
        for axis in last:
            emit.enter(loop(axis, low, high, rows), (axis,))
        if run is not None:
            emit.run(run)
        if self.lane is not None:
            self.lanes.enter(self.lanes.count if rows > 1 else "lanes")
        for node in nodes:
            self._state(node, state)
        if self.lane is not None:
            self._leave_lanes(nodes)
        for _ in last:
            emit.leave(pragma)
        if run is not None:
            emit.leave(threads)
        emit.missed = ""
        if missed:
            emit.innermost.add(f"if ({missed}) tcd_report(status, TCD_INDEX_OUT_OF_RANGE);")

    def _blocks_of_points(
        self, nodes: Sequence[FlatNode], accumulators: Sequence[CppAccumulator], low: str, high: str
    ) -> None:
        """Write an innermost loop in blocks of points with a state each."""
        states = {a.name: a.in_lanes for a in accumulators}
        axis = self.kernel.inner[-1]

        def body(counts: str) -> None:
            for node in nodes:
                self._state(node, states, counts)

        even, results = not self.choices.split, bool(accumulators)
        write_blocks(self.emit, axis, self._points, (low, high), body, even=even, results=results)

    def _state(
        self, node: FlatNode, states: Mapping[str, CppAccumulator], counts: str = ""
    ) -> None:
        """Compute a node, or the next state of a reduction or scan, if the point counts."""
        if node.across:
            add_to_column(self.emit, self.kernel, node)
            return
        if not node.kind:
            self.point(node)
            self._keep(node)
            return
        at = "[l]" if self.lane is not None or self._points else ""
        if node.name in self._owner:
            self._running(node, states[self._owner[node.name]].variable("best") + at)
            return
        state = states[node.name]
        value = self.emit.value(node.body).text
        value = state.chosen(value, counts) if counts else value
        if state.spread:
            at = f"[{self.kernel.inner[-1].name}]"
        for line in state.update(value, index_text(row_major(self.kernel.inner)), at):
            self.emit.innermost.add(line)
        if node.scans:
            self._running(node, state.result(at))

    def _scan_pieces(self, segment: Segment) -> ScanPieces | None:
        """Return the loops of a sweep with scans, if its values are worth vectors."""
        if not self.choices.vectorize or not self.kernel.scans or self.lane is not None:
            return None
        if sum(s.sweep for s in self.plan) > 1 or self._reports(segment.nodes):
            return None
        return scan_pieces(segment.nodes)

    def _note_misses(
        self, nodes: Sequence[FlatNode], accumulators: Sequence[CppAccumulator]
    ) -> str:
        """Declare what notes an index out of range in the innermost loop; empty for none.

        Without it, a loop that may find one runs in order. Vectors pay only if there is more to do
        than to load, since a vector of elements from anywhere is loaded one by one.
        """
        if not self.choices.vectorize or not self.kernel.inner or may_divide(nodes):
            return ""
        if any(a.by_place for a in accumulators) or self.kernel.scans or not self._reports(nodes):
            return ""
        if work_per_point(nodes) < EXPENSIVE:
            return ""
        self.emit.missed = self.emit.fresh("missed")
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
            self.emit.innermost.add(f"{pointer}[{index_text(address)}] = {value};")

    def _simd(self, nodes: Sequence[FlatNode], accumulators: Sequence[CppAccumulator]) -> str:
        """Return the pragma of the innermost loop; empty if it must run in order."""
        if self.lane is not None:
            return ""
        in_order = any(a.by_place for a in accumulators) or self.kernel.scans
        in_order |= self._reports(nodes) and not self.emit.missed
        noted = f" reduction(|:{self.emit.missed})" if self.emit.missed else ""
        alone = not self.kernel.accumulates and not self.kernel.outer
        if alone and self.choices.parallelize:
            simd = " simd" if self.choices.vectorize and not in_order else ""
            start = f"#pragma omp parallel for{simd}{noted}"
            return f"{start} num_threads(threads) if ({is_large(self.kernel)})"
        if in_order or not self.choices.vectorize:
            return ""
        clauses = [c for a in accumulators for c in a.clauses]
        return "#pragma omp simd" + noted + "".join(f" reduction({c})" for c in clauses)

    def _reports(self, nodes: Sequence[FlatNode]) -> bool:
        """Return whether the innermost loop may find an error in the data."""
        last = innermost(self.kernel, self.lane)
        return any(may_report(expr, last) for node in nodes for expr in walk(node.body))

    def results(self, accumulators: Sequence[CppAccumulator]) -> None:
        """Compute the values of reductions after their loops, and store them if needed."""
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

    def _leave_lanes(self, nodes: Sequence[FlatNode]) -> None:
        in_order = self._reports(nodes) and not self.emit.missed
        self.lanes.leave(vectorize=self.choices.vectorize and not in_order)

    def _lane_results(self, accumulators: Sequence[CppAccumulator]) -> None:
        nodes = [self.made[a.name] for a in accumulators]
        self.lanes.declare(nodes)
        self.lanes.join(accumulators)
        self.lanes.enter()
        for accumulator, node in zip(accumulators, nodes, strict=True):
            name = f"kept_{node.name}[l]"
            self.emit.innermost.add(f"{name} = {accumulator.result('[l]')};")
            kept = Place(element(name, node.dtype), INNERMOST)
            self.emit.values[node.name] = kept
            if node.name in self.kernel.stored:
                self.emit.store(node, kept)
        self._leave_lanes(())
        self.lanes.repeat(nodes)

    def _lane_segment(self, segment: Segment) -> None:
        self.lanes.declare(segment.nodes)
        self.lanes.enter()
        for node in segment.nodes:
            self.point(node)
            self.emit.innermost.add(f"kept_{node.name}[l] = {self.emit.values[node.name].text};")
        self._leave_lanes(segment.nodes)
        self.lanes.repeat(segment.nodes)
        for node in segment.nodes:
            kept = element(f"kept_{node.name}[l]", node.dtype)
            self.emit.values[node.name] = Place(kept, INNERMOST)
