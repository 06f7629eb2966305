"""Writes a kernel as a Triton function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tcdebug.compiler.codegen.halves.late_rounding import rounded_late
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.sweeps import Segment, of_other_sweeps, segments
from tcdebug.compiler.codegen.triton.accumulate import TritonAccumulator, TritonScan
from tcdebug.compiler.codegen.triton.emit import LOOP, TOP, TritonEmitter, TritonValue
from tcdebug.compiler.codegen.triton.idioms import with_idioms
from tcdebug.compiler.codegen.triton.one_sweep import FINITE, OneSweep, in_one_sweep
from tcdebug.compiler.codegen.triton.places import NO_PLACE
from tcdebug.compiler.codegen.triton.row_tiles import Groups, groups_of_threads
from tcdebug.compiler.codegen.triton.text import TYPES, TritonIndex
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.arithmetic.index_text import render
from tcdebug.compiler.ir.expr import Guarded
from tcdebug.compiler.ir.operations import SCANS
from tcdebug.compiler.schedule.inlining.inlining_cost import JOINED

TEXTS = TritonIndex({})
"""Writes sizes, which have no indirect indices."""


def places(axes: Sequence[Axis], whole: str) -> Iterator[str]:
    """Statements that compute axes from their row-major index."""
    for position, axis in enumerate(axes):
        behind = product(a.size for a in axes[position + 1 :])
        text = whole if behind == 1 else f"{whole} // ({render(behind, TEXTS)})"
        if position:
            text = f"({text}) % ({render(axis.size, TEXTS)})"
        yield f"{axis.name} = {text}"


def lines_of_origin(kernel: FlatKernel) -> list[str]:
    """Return the lines of the user's program that a kernel computes, as comments."""
    return list(dict.fromkeys(f"# {node.origin.described}" for node in kernel.nodes))


def joined_stores(
    kernel: FlatKernel, storage: Mapping[str, str]
) -> dict[str, tuple[FlatNode, ...]]:
    """Return the points of an unrolled node, as neighbours in memory, for each of them.

    Empty for kernels that accumulate, and for nodes whose points lie apart.
    """
    points: dict[str, list[FlatNode]] = {}
    for node in kernel.nodes:
        if node.name in kernel.stored and not kernel.accumulates and not node.scatters:
            points.setdefault(storage[node.name], []).append(node)
    found = [
        tuple(nodes)
        for nodes in points.values()
        if len(nodes) in JOINED
        and all((n.address - nodes[0].address).constant == k for k, n in enumerate(nodes))
    ]
    return {node.name: nodes for nodes in found for node in nodes}


class TritonKernelWriter:
    """Writes one kernel: the indices of the tile, then the nodes, sweep by sweep."""

    def __init__(
        self,
        kernel: FlatKernel,
        tile: Tile,
        storage: Mapping[str, str],
        arguments: Sequence[str],
        *,
        part: bool = False,
    ) -> None:
        """`part` makes a function that a combo kernel calls with the number of the program."""
        kernel = rounded_late(with_idioms(kernel))
        self.one_sweep = OneSweep(kernel, {}, {}, {}) if tile.persistent else in_one_sweep(kernel)
        self.kernel = self.one_sweep.kernel
        self.tile = tile
        self.storage = storage
        self.part = part
        self.arguments = [*arguments, "program"] if part else arguments
        self.emit = TritonEmitter(tile, storage)
        self.joined = joined_stores(self.kernel, storage)

    def write(self) -> str:
        """Return the source of the function."""
        self._tile_indices()
        if not self.kernel.accumulates:
            for node in self.kernel.nodes:
                self._point(node)
            self.emit.overwrite()
        elif self.tile.persistent:
            self._inner_indices("0", TOP)
            for node in self.kernel.nodes:
                self._whole(node)
        else:
            parts = segments(self.kernel)
            last = max((k for k, part in enumerate(parts) if part.sweep), default=0)
            several = sum(part.sweep for part in parts) > 1
            for number, part in enumerate(parts):
                if several and part.sweep:
                    self.emit.eviction = "evict_first" if number == last else "evict_last"
                self._segment(part)
                self.emit.eviction = ""
        constants = ["INDEX", *(f"{g.name.upper()}BLOCK" for g in self.tile.groups)]
        given = ", ".join([*self.arguments, *(f"{c}: tl.constexpr" for c in constants)])
        body = "\n".join(
            f"    {line}" for line in (*lines_of_origin(self.kernel), *self.emit.lines[TOP])
        )
        return f"@triton.jit\ndef {self.kernel.name}({given}):\n{body}\n"

    # -- indices of the tile ----------------------------------------------------------------

    def _tile_indices(self) -> None:
        """Write the offsets, indices and masks of a program, except those of the inner loops."""
        emit = self.emit
        groups = [g for g in self.tile.groups if g.name != "r" and g.axes]
        if not self.part:
            emit.add("program = tl.program_id(0).to(INDEX)", TOP)
        for group in reversed(groups):
            name, block = group.name, f"{group.name.upper()}BLOCK"
            size = self._text(group.size)
            first = "program"
            if group is not groups[0] or self.tile.alone:
                blocks = f"tl.cdiv({size}, {block})"
                emit.add(f"{name}blocks = {blocks}", TOP)
                first = f"(program % {name}blocks)"
            emit.add(f"{name}index = {first} * {block} + {self._lanes(name)}", TOP)
            if not group.exact:
                emit.add(f"{name}mask = {name}index < {size}", TOP)
            self._axes(group.axes, f"{name}index", TOP)
            if first != "program":
                emit.add(f"program = program // {name}blocks", TOP)
        self._axes(self.tile.alone, "program", TOP)

    def _lanes(self, name: str) -> str:
        """Return the numbers of the points of a block, along its dimension of the tile."""
        others = ", ".join(":" if g.name == name else "None" for g in self.tile.groups)
        return f"tl.arange(0, {name.upper()}BLOCK)[{others}]"

    def _inner_indices(self, start: str, level: int) -> None:
        group = self.tile.group("r")
        offset = "" if start == "0" else f"{start} + "
        self.emit.add(f"rindex = {offset}{self._lanes('r')}.to(INDEX)", level)
        if not group.exact:
            self.emit.add(f"rmask = rindex < {self._text(group.size)}", level)
        self._axes(group.axes, "rindex", level)

    def _axes(self, axes: Sequence[Axis], whole: str, level: int) -> None:
        """Compute the axes of a group from its index."""
        for line in places(axes, whole):
            self.emit.add(line, level)

    def _text(self, index: Index) -> str:
        return render(index, TEXTS)

    # -- nodes ------------------------------------------------------------------------------

    def _point(self, node: FlatNode) -> None:
        """Compute a node over the tile, and store it if needed."""
        if node.scatters:
            self.emit.scatter(node)
            return
        value = self.emit.value(node.body)
        self.emit.values[node.name] = value
        if node.name in self.joined:
            if node is self.joined[node.name][-1]:
                self.emit.store_joined(self.joined[node.name])
        elif node.name in self.kernel.stored:
            self.emit.store(node, value)

    def _accumulator(self, node: FlatNode) -> TritonAccumulator:
        kind, dimension = SCANS.get(node.kind, node.kind), len(self.tile.groups) - 1
        return TritonAccumulator(node.name, kind, node.body.dtype, node.dtype, dimension)

    def _masked(self, accumulator: TritonAccumulator, node: FlatNode, level: int) -> str:
        """Return the values of a tile, with the neutral element where the mask is false."""
        value = accumulator.taken(self.emit.value(node.body).text)
        shape = self.emit.shape(self.tile.every)
        name = self.emit.name("v")
        self.emit.add(f"{name} = tl.broadcast_to({value}, {shape})", level)
        if not self.tile.group("r").exact:
            self.emit.add(f"{name} = tl.where(rmask, {name}, {accumulator.neutral})", level)
        return name

    def _place(self, accumulator: TritonAccumulator | TritonScan, level: int) -> str:
        """The row-major positions of a tile, if the state of the accumulator has a position."""
        if not (
            accumulator.has_places if isinstance(accumulator, TritonScan) else accumulator.by_place
        ):
            return ""
        name = self.emit.name("w")
        spread = f"tl.broadcast_to(rindex, {self.emit.shape(self.tile.every)})"
        if not self.tile.group("r").exact:
            spread = f"tl.where(rmask, {spread}, {NO_PLACE})"
        self.emit.add(f"{name} = {spread}", level)
        return name

    def _whole(self, node: FlatNode) -> None:
        """Compute a node over a tile of whole rows."""
        if not node.kind:
            self._point(node)
            return
        accumulator = self._accumulator(node)
        values = self._masked(accumulator, node, TOP)
        if node.scans:
            scan = TritonScan(accumulator)
            place = self._place(scan, TOP)
            self.emit.add(scan.states(values, place), TOP)
            self.emit.add(f"result_{node.name} = {scan.result()}", TOP)
            self._keep(node, TritonValue(f"result_{node.name}", self.tile.every, TOP))
            return
        self._result(node, accumulator.reduced(values, self._place(accumulator, TOP)))

    def _result(self, node: FlatNode, text: str) -> None:
        name = f"result_{node.name}"
        self.emit.add(f"{name} = {text}", TOP)
        self._keep(node, TritonValue(name, self.tile.rows, TOP))

    def _keep(self, node: FlatNode, value: TritonValue) -> None:
        self.emit.values[node.name] = value
        if node.name in self.kernel.stored:
            self.emit.store(node, value)

    # -- loops over a row -------------------------------------------------------------------

    def _segment(self, segment: Segment) -> None:
        if not segment.sweep:
            for node in segment.nodes:
                self._point(node)
            return
        self._leave_earlier_sweeps(segment)
        shape = self.emit.shape(self.tile.every)
        accumulators = {n.name: self._accumulator(n) for n in segment.nodes if n.kind}
        grouped = {self._in_groups(n) for n in segment.nodes}
        for node in segment.nodes:
            if node.name in self.one_sweep.maxima:
                groups = self._groups()
                self.emit.add(f"sum_{node.name} = tl.zeros({groups}, {TYPES[node.dtype]})", TOP)
            elif node.name in self.one_sweep.means:
                self._declare_squares(node)
            elif node.scans:
                row = self.emit.shape(self.tile.rows)
                for line in TritonScan(accumulators[node.name]).declared(row):
                    self.emit.add(line, TOP)
            elif node.kind:
                state = self._groups() if node.name in grouped else shape
                for line in accumulators[node.name].declared(state):
                    self.emit.add(line, TOP)
        self.emit.looping = True
        self._inner_indices("roffset", LOOP)
        for node in segment.nodes:
            if node.name in self.one_sweep.maxima:
                self._accumulate_distances(node)
            elif node.name in self.one_sweep.means:
                self._accumulate_squares(node)
            elif not node.kind:
                self._point(node)
            elif node.name not in grouped:  # computed with their partners
                self._accumulate(node, accumulators[node.name])
        size = self._text(self.tile.group("r").size)
        self.emit.end_loop(f"for roffset in range(0, {size}, RBLOCK):")
        for node in segment.nodes:
            if node.name in self.one_sweep.maxima:
                largest = self.one_sweep.maxima[node.name]
                states = f"best_{largest}, sum_{node.name}, result_{largest}"
                finite = "finite_" if node.kind == FINITE else ""
                self._result(node, f"library.sum_of_{finite}distances({states})")
            elif node.reduces and node.name not in self.one_sweep.means:
                state = f"best_{node.name}"
                text = accumulators[node.name].reduced(state, f"place_{node.name}")
                self._result(node, text)
        for node in segment.nodes:
            if node.name in self.one_sweep.means:
                mean = self.emit.value(self.one_sweep.means[node.name]).text
                text = f"library.sum_of_squares({self._squares(node)}, {mean})"
                self._result(node, f"{text}.to({TYPES[node.dtype]})")

    def _accumulate(self, node: FlatNode, accumulator: TritonAccumulator) -> None:
        values = self._masked(accumulator, node, LOOP)
        if not node.scans:
            for line in accumulator.update(values, self._place(accumulator, LOOP)):
                self.emit.add(line, LOOP)
            return
        scan = TritonScan(accumulator)
        place = self._place(scan, LOOP)
        for line in (scan.states(values, place), *scan.carried(values, place)):
            self.emit.add(line, LOOP)
        self.emit.add(f"result_{node.name} = {scan.result()}", LOOP)
        self._keep(node, TritonValue(f"result_{node.name}", self.tile.every, LOOP))

    @cached_property
    def _group(self) -> Groups:
        """The elements with one maximum and one sum."""
        return groups_of_threads(self.kernel, self.tile)

    def _groups(self) -> str:
        """The shape of states per group."""
        return f"[XBLOCK, RBLOCK // {self._group.size}]"

    def _by_group(self, values: str) -> str:
        """A tile whose second and last dimension are those of a group."""
        group = self._group
        shape = f"[XBLOCK, {group.far}, RBLOCK // {group.size}, {group.near}]"
        return f"tl.reshape({values}, {shape})"

    def _in_groups(self, node: FlatNode) -> str:
        """The maximum or the sum that is accumulated with a node, per group; empty for none.

        If a thread loads one element at a time, a sum per group is slower than one per element: a
        variance over 704 rows of 90,001 floats takes 87 us instead of 67.
        """
        if node.name in self.one_sweep.sums and self._group.near > 1:
            return self.one_sweep.sums[node.name]
        return self.one_sweep.maxima.get(node.name, "")

    def _accumulate_distances(self, node: FlatNode) -> None:
        """Accumulate a maximum and a sum of exp(x - m), with one state per group."""
        largest = self.one_sweep.maxima[node.name]
        accumulator = TritonAccumulator(largest, "max", node.body.dtype, node.body.dtype)
        values = self._masked(accumulator, node, LOOP)
        states = f"best_{largest}, sum_{node.name}"
        added = f"library.add_distance({states}, {values})"
        if self._group.size > 1:
            added = f"library.add_distances({states}, {self._by_group(values)})"
        self.emit.add(f"{states} = {added}", LOOP)

    def _squares(self, node: FlatNode) -> str:
        """The states of a sum of squared distances, one per group; the count may be common."""
        return f"mean_{node.name}, squares_{node.name}, count_{node.name}"

    def _declare_squares(self, node: FlatNode) -> None:
        groups, dtype = self._groups(), TYPES[node.body.dtype]
        self.emit.add(f"mean_{node.name} = tl.zeros({groups}, {dtype})", TOP)
        self.emit.add(f"squares_{node.name} = tl.zeros({groups}, {dtype})", TOP)
        several = isinstance(node.body, Guarded) or not self.tile.group("r").exact
        counts = groups if several else "[]"
        self.emit.add(f"count_{node.name} = tl.full({counts}, 0, {dtype})", TOP)

    def _accumulate_squares(self, node: FlatNode) -> None:
        """Accumulate squared distances from a mean, with one state per group."""
        value = self.emit.value(node.body).text
        tests = [] if self.tile.group("r").exact else ["rmask"]
        if isinstance(node.body, Guarded):
            tests.append(self.emit.value(node.body.condition).text)
        both = self.emit.shape(self.tile.every)
        values = self._by_group(f"tl.broadcast_to({value}, {both})")
        states = self._squares(node)
        text = f"library.add_squares({states}, {values})"
        if tests:
            inside = self._by_group(f"tl.broadcast_to({' & '.join(tests)}, {both})")
            text = f"library.add_squares_inside({states}, {values}, {inside})"
        self.emit.add(f"{states}, added_{node.name} = {text}", LOOP)
        if total := self._in_groups(node):
            self.emit.add(f"best_{total} += added_{node.name}", LOOP)

    def _leave_earlier_sweeps(self, segment: Segment) -> None:
        """Forget values of earlier sweeps, which are recomputed where needed."""
        for node in of_other_sweeps(self.kernel, segment):
            self.emit.values.pop(node.name, None)
            self.emit.recompute[node.name] = node
