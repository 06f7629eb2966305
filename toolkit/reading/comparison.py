"""Compares two runs: the differences between them, and where the slower one spends its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tcdebug.reading.graphs import GraphStages, graph_stages, meaning
from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.summary import Summary, graph_name, of_kind, summarise

NOISE = 0.05
"""Differences in stage times below this fraction of the compile time are omitted."""
OWN_VARIABLES = ("TCDEBUG_RUN_DIR", "TCDEBUG_SESSION")


class Change(msgspec.Struct, frozen=True):
    """One difference. A side is empty if its run does not have the entry."""

    what: str
    before: str
    after: str


class Divergence(msgspec.Struct, frozen=True):
    """A graph of both runs, and the first stage whose texts differ in meaning."""

    graph: str
    stage: str
    before: Path
    after: Path


class Comparison(msgspec.Struct, frozen=True):
    """How run B differs from run A. `stages` are times, which always differ slightly."""

    run_a: str
    run_b: str
    seconds_a: float
    seconds_b: float
    stages: list[Change]
    environment: list[Change]
    graphs: list[Change]
    decisions: list[Change]
    kernels: list[Change]
    externs: list[Change]
    breaks: list[Change]
    recompiles: list[Change]
    caches: list[Change]

    @property
    def differs(self) -> bool:
        """Whether anything except times and caches differs."""
        return any(
            (self.environment, self.graphs, self.decisions, self.kernels, self.externs,
             self.breaks, self.recompiles)
        )  # fmt: skip


def compare(run_a: Run, run_b: Run) -> Comparison:
    """Compare two runs."""
    return compare_records(run_a, run_a.events(), run_b, run_b.events())


def compare_records(
    run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]
) -> Comparison:
    """Compare the events of two runs, or of two ranks of one run."""
    a, b = summarise(run_a, records_a), summarise(run_b, records_b)
    return Comparison(
        run_a=a.run,
        run_b=b.run,
        seconds_a=a.compile_seconds,
        seconds_b=b.compile_seconds,
        stages=_stages(a, b),
        environment=_changes(_environment(records_a), _environment(records_b)),
        graphs=_graphs(run_a, records_a, run_b, records_b),
        decisions=_changes(_decisions(records_a), _decisions(records_b)),
        kernels=_changes(_kernels(a), _kernels(b)),
        externs=_changes(_counted(a), _counted(b)),
        breaks=_changes(
            {f"{x.where} {x.what}": f"reached {x.times}" for x in a.breaks},
            {f"{x.where} {x.what}": f"reached {x.times}" for x in b.breaks},
        ),
        recompiles=_changes(_recompiles(a), _recompiles(b)),
        caches=_changes(
            {c.cache: _verdicts(c.verdicts) for c in a.caches},
            {c.cache: _verdicts(c.verdicts) for c in b.caches},
        ),
    )


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """Return the entries in which two tables differ, in order of appearance."""
    names = dict.fromkeys([*before, *after])
    return [
        Change(name, before.get(name, ""), after.get(name, ""))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _stages(a: Summary, b: Summary) -> list[Change]:
    """Return stages whose seconds differ by more than noise, largest difference first."""
    before = {s.stage: s.seconds for s in a.stages}
    after = {s.stage: s.seconds for s in b.stages}
    least = NOISE * max(a.compile_seconds, b.compile_seconds)
    gaps = {n: after.get(n, 0.0) - before.get(n, 0.0) for n in {**before, **after}}
    shown = sorted((n for n in gaps if abs(gaps[n]) >= least), key=lambda n: -abs(gaps[n]))
    return [
        Change(name, f"{before.get(name, 0.0):.3f} s", f"{after.get(name, 0.0):.3f} s")
        for name in shown
    ]


def _environment(records: Sequence[Record]) -> dict[str, str]:
    """Return command, versions, variables, settings of torch, toggles."""
    found: dict[str, str] = {}
    for record in of_kind(records, "run.start"):
        found["command"] = " ".join(record["data"]["argv"])
        found["folder"] = record["data"]["cwd"]
    for record in of_kind(records, "env.snapshot"):
        data = dict(record["data"])
        variables = data.pop("variables", {})
        found |= {name: str(value) for name, value in data.items()}
        found |= {f"${k}": v for k, v in variables.items() if k not in OWN_VARIABLES}
    for record in of_kind(records, "config.snapshot"):
        for line in record["data"]["changed"]:
            name, _, value = line.partition(" = ")
            found[name] = value or "set"
    toggles = {t for r in of_kind(records, "compile.start") for t in r["data"]["toggles"]}
    return {**found, "off": ", ".join(sorted(toggles))} if toggles else found


def _graphs(
    run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]
) -> list[Change]:
    """Return graphs that only one run has; for the others, the first stage that differs."""
    a, b = graph_stages(records_a), graph_stages(records_b)
    missing = [
        Change(name, *(("", "present"), ("present", ""))[name in a])
        for name in dict.fromkeys([*a, *b])
        if name not in a or name not in b
    ]
    return missing + [
        Change(d.graph, f"equal before {d.stage}", f"differs from {d.stage}")
        for d in divergences(run_a, records_a, run_b, records_b)
    ]


def divergences(
    run_a: Run, records_a: Sequence[Record], run_b: Run, records_b: Sequence[Record]
) -> list[Divergence]:
    """Return the graphs that both have and that differ, each with its first stage that differs."""
    a, b = graph_stages(records_a), graph_stages(records_b)
    found = [_first_difference(run_a, run_b, a[name], b[name]) for name in a if name in b]
    return [divergence for divergence in found if divergence is not None]


def _first_difference(run_a: Run, run_b: Run, a: GraphStages, b: GraphStages) -> Divergence | None:
    """Return the first stage whose texts differ in meaning."""
    complete = a.complete and b.complete
    path_a = path_b = ""
    for stage in dict.fromkeys([*a.texts, *b.texts]):
        if not complete and (stage not in a.texts or stage not in b.texts):
            continue
        path_a, path_b = a.texts.get(stage, path_a), b.texts.get(stage, path_b)
        if path_a.rpartition("/")[2] == path_b.rpartition("/")[2]:  # named by content
            continue
        if meaning(run_a.path / path_a) != meaning(run_b.path / path_b):
            return Divergence(a.name, stage, run_a.path / path_a, run_b.path / path_b)
    return None


def _decisions(records: Iterable[Record]) -> dict[str, str]:
    """Return the answer of each decision, by its description."""
    found: dict[str, str] = {}
    for record in of_kind(records, "decision"):
        data = record["data"]
        name = f"{record.get('unit')} {data['subject']} ({graph_name(record)})"
        found[name] = "yes" if data["allowed"] else "no"
    return found


def _kernels(summary: Summary) -> dict[str, str]:
    rows = Counter[str]()
    for kernel in summary.kernels:
        rows[f"{kernel.name} ({kernel.graph}) moves {kernel.moved}"] += 1
    found: dict[str, str] = {}
    for text, number in rows.items():
        name, _, moved = text.rpartition(" moves ")
        times = f" x{number}" if number > 1 else ""
        found[name] = ("bytes unknown" if moved == "0" else f"{moved} bytes") + times
    return found


def _counted(summary: Summary) -> dict[str, str]:
    return {e.op: f"x{e.calls} {e.reason}" for e in reversed(summary.externs)}


def _recompiles(summary: Summary) -> dict[str, str]:
    return {
        f"{r.compile_id} {r.frame}": "; ".join(r.changed or r.reasons) for r in summary.recompiles
    }


def _verdicts(verdicts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
