"""Explains how torch.compile compiled a script: frames, breaks, guards, recompiles, costs."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence

import msgspec

from tcdebug.reading.advice import advice, cause
from tcdebug.reading.breaks import Break
from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.summary import (
    CompileRow,
    ExternRow,
    RecompileRow,
    of_kind,
    summarise,
)

RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
CONSTANT = re.compile(r"EQUALS_MATCH: (L\[.+?) == (.+)$")


class Frame(msgspec.Struct, frozen=True):
    """A function that Dynamo compiled, with all of its graphs."""

    name: str
    where: str
    compiles: int
    nodes: int
    guards: int
    seconds: float


class BreakCost(msgspec.Struct, frozen=True):
    """A graph break, its source line, and the compiles that it caused."""

    graph_break: Break
    source: str
    graphs: int
    seconds: float


class RecompileCost(msgspec.Struct, frozen=True):
    """A recompile and what removes it.

    `cause` is what differed from the earlier calls: the failed guard, and the changed values.
    """

    recompile: RecompileRow
    source: str
    cause: str
    advice: list[str]


class Explanation(msgspec.Struct, frozen=True):
    """The compiles of a script. `constants` are values for which a graph is specialised."""

    run: str
    command: str
    exit_status: int | None
    seconds: float
    compile_seconds: float
    frames: list[Frame]
    breaks: list[BreakCost]
    recompiles: list[RecompileCost]
    constants: list[str]
    guards: int
    kernels: int
    externs: list[ExternRow]
    fallbacks: list[str]
    failures: list[str]


def explain(run: Run, records: Sequence[Record]) -> Explanation:
    """Explain a script from the events of its run."""
    summary = summarise(run, records)
    forward = [c for c in summary.compiles if not c.backward]
    guards = of_kind(records, "guard.summary")
    return Explanation(
        run=summary.run,
        command=summary.command,
        exit_status=summary.exit_status,
        seconds=summary.seconds,
        compile_seconds=round(sum(c.seconds for c in summary.compiles), 6),
        frames=_frames(summary.compiles),
        breaks=sorted((_break(b, forward) for b in summary.breaks), key=lambda b: -b.seconds),
        recompiles=[_recompile(r) for r in summary.recompiles],
        constants=_constants(guards),
        guards=sum(g["data"]["total"] for g in guards),
        kernels=len(summary.kernels),
        externs=summary.externs,
        fallbacks=summary.fallbacks,
        failures=[*summary.failures, *(c.failure for c in forward if c.failure)],
    )


def _frames(compiles: Sequence[CompileRow]) -> list[Frame]:
    """Return the functions by seconds. A backward counts for the frame of its graph."""
    owner = {c.compile_id: (c.frame, c.where) for c in compiles if not c.backward}
    groups: dict[tuple[str, str], list[CompileRow]] = {}
    for compiled in compiles:
        groups.setdefault(owner.get(compiled.compile_id, ("?", "")), []).append(compiled)
    frames = [
        Frame(
            name,
            where,
            sum(not c.backward for c in rows),
            max(c.nodes for c in rows),
            max(c.guards for c in rows),
            round(sum(c.seconds for c in rows), 6),
        )
        for (name, where), rows in groups.items()
    ]
    return sorted(frames, key=lambda f: -f.seconds)


def _break(found: Break, compiles: Sequence[CompileRow]) -> BreakCost:
    """Return a break with the compiles of the frames that continue after it."""
    behind = [c for c in compiles if _resumes(c, found.where)]
    seconds = round(sum(c.seconds for c in behind), 6)
    return BreakCost(found, source_line(found.where), len(behind), seconds)


def _resumes(compiled: CompileRow, where: str) -> bool:
    """Return whether a compiled frame continues one that broke at this line."""
    match = RESUMED.search(compiled.frame)
    filename, _, line = where.rpartition(":")
    return match is not None and match[2] == line and compiled.where.startswith(filename + ":")


def _recompile(row: RecompileRow) -> RecompileCost:
    source, remedies = source_line(row.where), advice(row.reasons, row.changed)
    return RecompileCost(row, source, cause(row.reasons, row.changed), remedies)


def _constants(guards: Iterable[Record]) -> list[str]:
    """Return numbers and strings for which a graph was specialised, with their lines."""
    found: dict[str, None] = {}
    for record in guards:
        for guard in record["data"]["guards"]:
            if match := CONSTANT.match(guard):
                found[f"{match[1]} == {match[2]}"] = None
    return list(found)


def source_line(where: str) -> str:
    """Return the text of a line FILE:N; empty if it cannot be read."""
    filename, _, number = where.rpartition(":")
    return linecache.getline(filename, int(number)).strip() if number.isdecimal() else ""
