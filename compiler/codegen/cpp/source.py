"""Writes all kernels of a graph in C++, as one translation unit or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from tcdebug.compiler.codegen.cpp.branchless import has_branches
from tcdebug.compiler.codegen.cpp.emitters.float16_rows import converts_rows
from tcdebug.compiler.codegen.cpp.emitters.reversed_rows import reverses_rows
from tcdebug.compiler.codegen.cpp.emitters.text import TYPES
from tcdebug.compiler.codegen.cpp.kernel import CppKernelWriter, KernelParameters
from tcdebug.compiler.codegen.cpp.lanes import LANES, block_of
from tcdebug.compiler.codegen.cpp.sweep_parts import cuts_sweeps
from tcdebug.compiler.codegen.cpp.transposed_loads import (
    tiling,
    transposed_results,
    transposed_rows,
)
from tcdebug.compiler.codegen.cpp.variants import (
    VECTOR,
    KernelVariant,
    can_share,
    can_split,
    crossing,
    index_sets,
    innermost,
    lane_axis,
    points,
    waits_for_memory,
)
from tcdebug.compiler.codegen.halves.half_pairs import (
    Paired,
    paired_across_rows,
    paired_along_rows,
)
from tcdebug.compiler.codegen.halves.half_values import has_half_values, with_half_values
from tcdebug.compiler.codegen.kernels.call import KernelCall, describe
from tcdebug.compiler.codegen.kernels.column_values import with_column_values
from tcdebug.compiler.codegen.kernels.cut_axes import with_cut_axes
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, flatten
from tcdebug.compiler.codegen.kernels.joined_axes import joined_for_lanes
from tcdebug.compiler.codegen.kernels.loop_order import by_strides
from tcdebug.compiler.codegen.kernels.sharing import numbered_text, shared
from tcdebug.compiler.codegen.kernels.short_columns import rows_together
from tcdebug.compiler.codegen.kernels.sweeps import segments
from tcdebug.compiler.codegen.kernels.unroll import unrolled
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.kernel import Kernel

PRELUDE = (
    "types.hpp",
    "elementary_functions.hpp",
    "prelude.hpp",
    "special_functions.hpp",
    "float16_rows.hpp",
)
"""The files of the prelude."""

FEW = 16
"""Up to so many points, a single result has no vectors. g++ 12 crashes on some of these loops, such
as the maximum of 2 x 2 integers, of which the rows are one row in memory."""
WORTH_A_UNIT = 10_000
"""The characters that take g++ about 0.3 s; the prelude and the linker take less than 0.1 s."""


@dataclass(frozen=True)
class TranslationUnit:
    """A text for the C++ compiler, and the kernels in it."""

    kernels: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class CppSource:
    """The kernels as one translation unit, and their calls."""

    text: str
    calls: Mapping[str, KernelCall]
    buffers: Mapping[str, Buffer]
    language: str = "c++"
    suffix: str = "cpp"

    def units(self, most: int) -> list[TranslationUnit]:
        """Return the kernels as at most so many translation units of similar length.

        A unit is worth a process of its own if it takes g++ longer than the prelude and the linker.
        """
        written = {name: call.source for name, call in self.calls.items() if call.source}
        length = sum(map(len, written.values()))
        count = min(most, len(written), length // WORTH_A_UNIT)
        if count < 2:
            return [TranslationUnit(tuple(written), self.text)]
        units = [TranslationUnit((), prelude())] * count
        for name in sorted(written, key=lambda name: len(written[name]), reverse=True):
            shortest = min(range(count), key=lambda k: len(units[k].text))
            unit = units[shortest]
            text = f"{unit.text}\n{written[name]}"
            units[shortest] = TranslationUnit((*unit.kernels, name), text)
        return units


def prelude() -> str:
    """Return the C++ at the start of every translation unit."""
    files = resources.files(__package__)
    return "\n".join((files / name).read_text() for name in PRELUDE)


def write_cpp(kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], gate: Gate) -> CppSource:
    """Write kernels as one translation unit."""
    calls = {k.name: write_kernel(k, buffers, gate) for k in kernels}
    calls = shared(calls, gate, lambda call: numbered_text(call, "//"))
    return CppSource(joined(calls.values()), calls, buffers)


def joined(calls: Iterable[KernelCall]) -> str:
    """Return kernels as one translation unit."""
    return "\n".join([prelude(), *(call.source for call in calls if call.source)])


def write_kernel(kernel: Kernel, buffers: Mapping[str, Buffer], gate: Gate) -> KernelCall:
    """Return the call of a kernel, with its source."""
    cut = _cut(kernel, buffers)
    if cut is not kernel and gate.allows("codegen.cut_axes", kernel.subject):
        kernel = cut
    ordered = by_strides(kernel, buffers)
    if ordered != kernel and gate.allows("codegen.loop_order", kernel.subject):
        kernel = ordered
    collapse = gate.allows("codegen.collapse", kernel.subject)
    flat = flatten(kernel, buffers, collapse=collapse)
    assert all(n.exists is None for n in flat.nodes)  # `fuse.split_scan` is for GPUs
    flat = joined_for_lanes(flat) if collapse else flat
    call = describe(kernel, flat, buffers)
    if has_half_values(flat) and gate.allows("codegen.half_values", kernel.subject):
        flat = with_half_values(flat)
    points = unrolled(flat)
    if points is not None and gate.allows("codegen.unroll", kernel.subject):
        flat, call = points.kernel, replace(call, points=points.names)
    pairs = _paired(flat)
    if pairs is not None and gate.allows("codegen.pairs", kernel.subject):
        flat, call = pairs.kernel, replace(call, points=pairs.names)
        choices = _choose(flat, kernel.subject, gate, pairs.axis)
    else:
        choices = _choose(flat, kernel.subject, gate)
    storage = call.storage()
    declarations = [
        *(f"const {TYPES[buffers[n].dtype]}* __restrict__ {storage[n]}" for n in call.loads),
        *(f"{TYPES[buffers[n].dtype]}* __restrict__ {storage[n]}" for n in call.stores),
        *(f"int64_t {s}" for s in call.symbols),
        *(f"double {storage[p]}" for p in call.parameters),
        "int threads",
    ]
    writer = CppKernelWriter(flat, choices, KernelParameters(tuple(declarations), storage))
    source = f"{writer.write()}\n{_packed(kernel.name, declarations)}"
    return replace(call, source=source, after=("threads",), addresses=False, joins=True)


def _cut(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """Return a kernel with `codegen.cut_axes`.

    The axes of a reduction stay whole if vector lanes would run along short rows of them.
    """
    cut = with_cut_axes(kernel)
    if cut is kernel or not kernel.inner:
        return cut
    flat = flatten(by_strides(cut, buffers), buffers, collapse=True)
    short = estimate(flat.inner[-1].size) < VECTOR
    if short and lane_axis(flat, transposing=True) is None:
        return with_cut_axes(kernel, inner=False)
    return cut


def _packed(name: str, declarations: Sequence[str]) -> str:
    """Return a function that takes the kernel's arguments in an array, eight bytes each."""
    given: list[str] = []
    for place, declaration in enumerate(declarations):
        ctype = declaration.rpartition(" ")[0].removesuffix(" __restrict__")
        read = "as_double" if ctype == "double" else f"({ctype})"
        given.append(f"{read}(g[{place}])")
    call = f"{name}({', '.join(given)})"
    return f'extern "C" int {name}_packed(const int64_t* g) {{ return {call}; }}'


def _paired(flat: FlatKernel) -> Paired | None:
    """Return a kernel with `codegen.pairs` along the axis of vector lanes."""
    if tiling(flat) is not None:
        return None
    lane = lane_axis(flat, transposing=True)
    if lane is None:
        return paired_along_rows(flat)
    if transposed_rows(flat, lane, LANES) is not None or rows_together(flat, lane) > 1:
        return None
    return paired_across_rows(flat, lane)


def _lanes(flat: FlatKernel, subject: str, gate: Gate, pairs: Axis | None) -> KernelVariant:
    """Choose an outer axis for vector lanes, and what is transposed for them.

    They run along the axis of `pairs`, if there is one.
    """
    if pairs is not None:
        columns = pairs in flat.outer and gate.allows("codegen.column", subject)
        return KernelVariant(lane=pairs if columns else None)
    lane = lane_axis(flat, transposing=True)
    transposed = transposed_rows(flat, lane, LANES) if lane is not None else None
    if transposed is not None and not gate.allows("codegen.tile", subject):
        transposed = None
    if transposed is None:
        lane = lane_axis(flat, transposing=False)
    if lane is None or not gate.allows("codegen.column", subject):
        return KernelVariant()
    rows = rows_together(flat, lane)
    if rows > 1 and not gate.allows("codegen.rows", subject):
        rows = 1
    results = transposed_results(transposed.kernel if transposed else flat, lane, LANES)
    if rows > 1 or (results and not transposed and not gate.allows("codegen.tile", subject)):
        results = None
    return KernelVariant(lane=lane, rows=rows, transposed=transposed, results=results)


def _choose(flat: FlatKernel, subject: str, gate: Gate, pairs: Axis | None = None) -> KernelVariant:
    """Choose how to write a kernel. The gate is asked only about choices that matter for it.

    Vector lanes run along the axis of `pairs`, if there is one.
    """
    chosen = _lanes(flat, subject, gate, pairs)
    lane = chosen.lane
    split = lane is None and can_split(flat) and gate.allows("codegen.split", subject)
    tiled = tiling(flat)
    if tiled is not None and not gate.allows("codegen.tile", subject):
        tiled = None
    sets = index_sets(flat) if tiled is None else None
    if sets is not None and not gate.allows("codegen.index_sets", subject):
        sets = None
    chosen = replace(
        chosen,
        parallelize=can_share(flat) and gate.allows("codegen.parallelize", subject),
        tiling=tiled,
        split=split,
        index_sets=sets,
        cut_sweeps=(
            lane is None
            and not split
            and cuts_sweeps(flat)
            and gate.allows("codegen.index_sets", subject)
        ),
        column_values=(
            lane is not None
            and with_column_values(flat, lane) is not None
            and gate.allows("codegen.column_values", subject)
        ),
        scratch=(
            chosen.rows == 1
            and not split
            and bool(crossing(flat, 1 if lane is None else LANES))
            and gate.allows("codegen.scratch", subject)
        ),
    )
    few = flat.accumulates and not flat.outer and (points(flat).constant or FEW + 1) <= FEW
    has_loops = bool(flat.outer or flat.inner) and not few
    vectorize = has_loops and gate.allows("codegen.vectorize", subject)
    return _vectorized(flat, chosen, subject, gate) if vectorize else chosen


def _vectorized(flat: FlatKernel, chosen: KernelVariant, subject: str, gate: Gate) -> KernelVariant:
    """Choose how the vectors of a kernel are written."""
    along, whole = innermost(flat, chosen.lane), not (chosen.index_sets or chosen.cut_sweeps)
    in_blocks = chosen.transposed or chosen.tiling
    changed = in_blocks.kernel if in_blocks else flat
    reverses = whole and reverses_rows(changed, along)
    if reverses and not gate.allows("codegen.reversed_rows", subject):
        reverses = False
    return replace(
        chosen,
        vectorize=True,
        narrow=(
            chosen.tiling is None
            and whole
            and waits_for_memory(flat)
            and gate.allows("codegen.narrow", subject)
        ),
        blocks=(
            chosen.lane is None
            and not chosen.cut_sweeps
            and any(block_of(flat, segment) for segment in segments(flat))
            and gate.allows("codegen.blocks", subject)
        ),
        reversed_rows=reverses,
        float16_rows=(
            converts_rows(changed, along, reverses=reverses)
            and gate.allows("codegen.float16_rows", subject)
        ),
        branchless=(
            whole
            and along is not None
            and has_branches(flat, along)
            and gate.allows("codegen.branchless", subject)
        ),
    )
