"""Summarises a run: where the time went, kernels, calls of ATen, breaks, recompiles, caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tcdebug.reading.breaks import Break, read_break
from tcdebug.reading.checks import checks
from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.spans import covered, spans


class StageTime(msgspec.Struct, frozen=True):
    """A stage: its own seconds over all graphs, and the number of times it ran."""

    stage: str
    seconds: float
    runs: int


class KernelRow(msgspec.Struct, frozen=True):
    """A generated kernel. `moved` is 0 if the number of bytes is unknown."""

    name: str
    graph: str
    language: str
    moved: int
    nodes: int
    source: str


class ExternRow(msgspec.Struct, frozen=True):
    """An operator that was left to ATen or a library, and why."""

    op: str
    reason: str
    calls: int


class RecompileRow(msgspec.Struct, frozen=True):
    """A frame that was compiled again: the failed guards, the changed values, the cost."""

    compile_id: str
    frame: str
    where: str
    reasons: list[str]
    changed: list[str]
    seconds: float


class CacheRow(msgspec.Struct, frozen=True):
    """The answers of a cache, with their numbers."""

    cache: str
    verdicts: dict[str, int]


class CompileRow(msgspec.Struct, frozen=True):
    """One compile of a frame: function, size, guards, seconds."""

    compile_id: str
    frame: str
    where: str
    nodes: int
    guards: int
    seconds: float
    backward: bool
    failure: str


class Summary(msgspec.Struct, frozen=True):
    """The summary of a run."""

    run: str
    command: str
    seconds: float
    exit_status: int | None
    compile_seconds: float
    compiles: list[CompileRow]
    stages: list[StageTime]
    kernels: list[KernelRow]
    externs: list[ExternRow]
    breaks: list[Break]
    recompiles: list[RecompileRow]
    caches: list[CacheRow]
    fallbacks: list[str]
    failures: list[str]
    checks: list[str]
    """What `run --check` has compared."""


def summarise(run: Run, records: Sequence[Record]) -> Summary:
    """Summarise the events of a run."""
    ended = next((r for r in reversed(records) if r["event"] == "run.end"), None)
    return Summary(
        run=str(run.path),
        command=" ".join([Path(run.info.argv[0]).name, *run.info.argv[1:]]),
        seconds=ended["data"]["seconds"] if ended else _last(records),
        exit_status=ended["data"]["exit_status"] if ended else None,
        compile_seconds=round(covered(spans(records, ("stage.end",))), 6),
        compiles=compiles(records),
        stages=stage_times(records),
        kernels=kernels(records),
        externs=externs(records),
        breaks=breaks(records),
        recompiles=recompiles(records),
        caches=caches(records),
        fallbacks=_distinct(
            f"{r['data']['what']}: {r['data']['reason']}" for r in of_kind(records, "fallback")
        ),
        failures=_distinct(_failure(r) for r in of_kind(records, "compile.fail", "failure")),
        checks=checks(records),
    )


def of_kind(records: Iterable[Record], *kinds: str) -> list[Record]:
    """Return the records of some kinds, in order."""
    return [r for r in records if r.get("event") in kinds]


def stage_times(records: Iterable[Record]) -> list[StageTime]:
    """Return the stages by their own seconds, largest first."""
    seconds: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for span in spans(records, ("stage.end",)):
        seconds[span.name] += span.own  # type: ignore[assignment] # counts in seconds
        runs[span.name] += 1
    return [StageTime(name, round(own, 6), runs[name]) for name, own in seconds.most_common()]


def kernels(records: Iterable[Record]) -> list[KernelRow]:
    """Return the kernels by bytes moved, largest first."""
    rows = [
        KernelRow(
            r["data"]["name"],
            graph_name(r),
            r["data"]["language"],
            r["data"]["moved"],
            len(r["data"]["computes"]),
            r["data"]["source"],
        )
        for r in of_kind(records, "kernel")
    ]
    return sorted(rows, key=lambda k: -k.moved)


def externs(records: Iterable[Record]) -> list[ExternRow]:
    """Return calls of ATen by operator and reason, most frequent first."""
    counted = Counter((r["data"]["op"], r["data"]["reason"]) for r in of_kind(records, "extern"))
    return [ExternRow(op, reason, calls) for (op, reason), calls in counted.most_common()]


def breaks(records: Iterable[Record]) -> list[Break]:
    """Return the distinct graph breaks, each with its number of occurrences."""
    found: dict[tuple[str, str], Break] = {}
    for record in of_kind(records, "graph.break"):
        one = read_break(record["data"]["reason"], place(record))
        key = (one.where, one.what)
        met = found[key].times + 1 if key in found else 1
        found[key] = msgspec.structs.replace(one, times=met)
    return list(found.values())


def recompiles(records: Sequence[Record]) -> list[RecompileRow]:
    """Return the recompiles in order, with the values whose change caused them."""
    metrics = {c.compile_id: c for c in compiles(records) if not c.backward}
    changed: dict[str, list[str]] = {}
    for record in of_kind(records, "size.changed"):
        data = record["data"]
        change = f"{data['name']}: {data['before']} -> {data['after']} ({data['reason']})"
        changed.setdefault(str(record.get("compile_id")), []).append(change)
    rows: list[RecompileRow] = []
    for record in of_kind(records, "recompile"):
        compile_id = str(record.get("compile_id", ""))
        of_frame = metrics.get(compile_id)
        rows.append(
            RecompileRow(
                compile_id,
                of_frame.frame if of_frame else "",
                place(record) or (of_frame.where if of_frame else ""),
                [_guard(line) for line in record["data"]["reason"].splitlines()],
                _distinct(changed.get(compile_id, [])),
                of_frame.seconds if of_frame else 0.0,
            )
        )
    return rows


def compiles(records: Iterable[Record]) -> list[CompileRow]:
    """Return the compile metrics that torch reports for each frame."""
    return [
        CompileRow(
            str(r.get("compile_id", "")),
            r["data"]["frame"],
            place(r),
            r["data"]["nodes"],
            r["data"]["guards"],
            r["data"]["seconds"],
            r["data"]["backward"],
            r["data"]["failure"],
        )
        for r in of_kind(records, "compile.metrics")
    ]


def caches(records: Iterable[Record]) -> list[CacheRow]:
    """Return the answers of each cache."""
    found: dict[str, Counter[str]] = {}
    for record in of_kind(records, "cache"):
        name = str(record.get("stage") or "kernels")
        found.setdefault(name, Counter())[record["data"]["verdict"]] += 1
    return [CacheRow(name, dict(verdicts)) for name, verdicts in found.items()]


def graph_name(record: Record) -> str:
    """Return the graph of an event, such as 0/0 forward."""
    return f"{record.get('compile_id', '')} {record.get('direction', '')}".strip()


def place(record: Record) -> str:
    """Return the user's line of an event, such as model.py:12."""
    where = record.get("user_loc") or {}
    return f"{where['filename']}:{where['line']}" if where.get("filename") else ""


def _guard(line: str) -> str:
    """Return a failed guard without its source line."""
    return line.partition(" # ")[0]


def _failure(record: Record) -> str:
    data = record["data"]
    kind = data.get("exception") or data.get("failure")
    return f"{kind}: {data['message'].strip().partition(chr(10))[0]}"


def _last(records: Sequence[Record]) -> float:
    return float(records[-1].get("t_ns", 0)) / 1e9 if records else 0.0


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
