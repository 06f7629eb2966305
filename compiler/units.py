"""Lists all units that can be switched off, in the order of the pipeline, with their summaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcdebug.compiler import bodies, codegen, decompose, direct_calls, partition, pipeline
from tcdebug.compiler.codegen.wrapper import views
from tcdebug.compiler.gate.gated import FAMILY
from tcdebug.compiler.lower.tables import LATE, LOWERINGS, VIEWS
from tcdebug.compiler.partition import donated_tensors, narrow_places
from tcdebug.compiler.registry import REGISTRY
from tcdebug.compiler.runtime.cuda import capturable

FUSION = {
    "fuse.inline": "compute a producer inside its consumers instead of storing it",
    "fuse.vertical": "run a producer and its consumer in one loop nest",
    "fuse.reduction": "run a reduction and what surrounds it in one loop nest",
    "fuse.equal_elements": "reduce elements that are equal along an axis once",
    "fuse.place_by_value": "find the place of an extreme by comparing elements with it",
    "fuse.split_reduction": "split a reduction to few elements among the programs of a GPU",
    "fuse.split_short_rows": "on a CPU, reduce the outer axes before a short innermost one",
    "fuse.wide_gathers": "on a CPU, read halves through an index from a copy in float32",
    "fuse.recompute": "compute a producer again where a GPU would read more to load it",
    "fuse.split_scan": "split a scan of few long rows among the programs of a GPU",
    "fuse.column_sums": "on a CPU, add up columns in the kernel that reduces their rows",
    "fuse.horizontal": "run neighbours that read the same memory in one loop nest",
    "fuse.combo": "launch independent kernels of a GPU together",
}

MEMORY = {
    "memory.order": "run steps that free memory before steps that allocate it",
    "memory.in_place": "write a result over an input that its kernel is the last to read",
    views.UNIT: "make a view from the memory that it shares, not by calling operators",
    "memory.reuse": "write a result into the memory of a dead buffer",
}

RUNTIME = {
    direct_calls.UNIT: "call compiled graphs past AOTAutograd's wrappers that have nothing to do",
    bodies.UNIT: "compile the bodies of cond, while_loop, scan and map",
    capturable.UNIT: "replay a CUDA graph instead of launching each kernel",
}


@dataclass(frozen=True)
class Unit:
    """An optional step of a compile. `name` switches it off."""

    name: str
    summary: str


def units() -> Iterator[Unit]:
    """Return every unit, in the order of the pipeline."""
    for name, function in pipeline.PREGRAD.items():
        yield Unit(name, _first_line(function.__doc__))
    for op in sorted(decompose.decompositions(), key=str):
        yield Unit(decompose.unit(op), f"replace {op} by simpler operators")
    yield Unit(partition.UNIT, "recompute cheap values in backward instead of saving them")
    yield Unit(narrow_places.UNIT, "save places of extremes for backward in few bytes")
    yield Unit(
        donated_tensors.UNIT, "let backward write over saved tensors that nothing else reads"
    )
    for name, function in {**pipeline.RANDOM, **pipeline.ATEN}.items():
        yield Unit(name, _first_line(function.__doc__))
    for name in sorted(map(str, (*LOWERINGS, *VIEWS, *LATE))):
        yield Unit(f"lower.{name}", f"generate loops for {name} instead of calling ATen")
    for name, summary in (FUSION | codegen.UNITS | MEMORY | RUNTIME).items():
        yield Unit(name, summary)


def is_of_program(unit: str) -> bool:
    """Return whether this program defines a unit, so that a process without the program lacks it.

    It is the unit of a gated pass, or one that the program registered or replaced.
    """
    return (
        unit.startswith(f"{FAMILY}.")
        or unit in REGISTRY.pregrad_passes
        or unit in REGISTRY.aten_passes
        or unit in {decompose.unit(op) for op in REGISTRY.decompositions}
        or unit in {f"lower.{op}" for op in REGISTRY.lowerings}
    )


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0].rstrip(".") if text else ""
