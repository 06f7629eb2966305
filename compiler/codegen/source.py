"""All kernels of a graph as one C++ translation unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from tcdebug.compiler.codegen.choices import Choices, can_split, crossing, lane_axis
from tcdebug.compiler.codegen.cpp import Arguments, KernelWriter
from tcdebug.compiler.codegen.cpp_text import TYPES
from tcdebug.compiler.codegen.flatten import FlatKernel, flat_indices, flatten
from tcdebug.compiler.codegen.tile import tiling
from tcdebug.compiler.gate import Gate
from tcdebug.compiler.ir.expr import Parameter, walk
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.schedule.cost import bytes_of
from tcdebug.compiler.schedule.kernel import Kernel, Schedule


@dataclass(frozen=True)
class KernelCall:
    """How the wrapper calls a kernel: what it passes, in order."""

    kernel: Kernel
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    symbols: tuple[str, ...]
    parameters: tuple[str, ...]
    source: str
    moved: int
    """An estimate of the bytes read and written."""
    into: Mapping[str, str]
    """What is stored -> the input whose memory it is."""


@dataclass(frozen=True)
class CppSource:
    """One translation unit, and how its kernels are called."""

    text: str
    calls: Mapping[str, KernelCall]


def prelude() -> str:
    """The C++ that every translation unit begins with."""
    return (resources.files(__package__) / "prelude.hpp").read_text()


def write_kernels(schedule: Schedule, gate: Gate) -> CppSource:
    """The C++ of all kernels of a schedule."""
    buffers = schedule.graph.buffers()
    calls = {k.name: _write(k, buffers, gate) for k in schedule.kernels()}
    text = "\n".join([prelude(), *(c.source for c in calls.values())])
    return CppSource(text if calls else "", calls)


def _write(kernel: Kernel, buffers: Mapping[str, Buffer], gate: Gate) -> KernelCall:
    collapse = gate.allows("codegen.collapse", kernel.subject)
    flat = flatten(kernel, buffers, collapse=collapse)
    choices = _choose(flat, kernel.subject, gate)
    loaded = kernel.loaded()
    parameters = sorted(
        {e.name for n in flat.nodes for e in walk(n.body) if isinstance(e, Parameter)}
    )
    into = {n.name: n.into for n in flat.nodes if n.into}
    loads = tuple(sorted(loaded - set(parameters) - set(into.values())))
    stores = tuple(n.name for n in kernel.nodes if n.name in kernel.stored)
    symbols = tuple(
        sorted(
            {s.name for i in flat_indices(flat) for s in i.symbols}
            | {s.name for a in (*kernel.outer, *kernel.inner) for s in a.size.symbols}
        )
    )
    storage = {name: f"{name}_in" for name in loads}
    storage |= {name: f"{name}_out" for name in stores}
    storage |= {memory: storage[name] for name, memory in into.items()}
    storage |= {name: f"{name}_value" for name in parameters}
    declarations = [
        *(f"const {TYPES[buffers[n].dtype]}* __restrict__ {storage[n]}" for n in loads),
        *(f"{TYPES[buffers[n].dtype]}* __restrict__ {storage[n]}" for n in stores),
        *(f"int64_t {s}" for s in symbols),
        *(f"double {storage[p]}" for p in parameters),
        "int threads",
    ]
    writer = KernelWriter(flat, choices, Arguments(tuple(declarations), storage))
    updated = loaded & set(into.values())
    moved = sum(bytes_of(buffers[name]) for name in (*loads, *updated, *stores))
    return KernelCall(
        kernel, loads, stores, symbols, tuple(parameters), writer.write(), moved, into
    )


def _choose(flat: FlatKernel, subject: str, gate: Gate) -> Choices:
    """How to write a kernel; only what would make a difference is asked for."""
    lane = lane_axis(flat)
    if lane is not None and not gate.allows("codegen.column", subject):
        lane = None
    split = lane is None and can_split(flat) and gate.allows("codegen.split", subject)
    tiled = tiling(flat)
    if tiled is not None and not gate.allows("codegen.tile", subject):
        tiled = None
    loops = bool(flat.outer or flat.inner)
    return Choices(
        vectorize=loops and gate.allows("codegen.vectorize", subject),
        parallelize=loops and gate.allows("codegen.parallelize", subject),
        lane=lane,
        tiling=tiled,
        split=split,
        scratch=(
            lane is None
            and not split
            and bool(crossing(flat))
            and gate.allows("codegen.scratch", subject)
        ),
    )
