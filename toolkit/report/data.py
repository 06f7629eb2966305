"""The data that a page shows of a run: graphs with their texts, kernels, spans, searches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.display.ranks import ranks_text
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import REPORT
from tcdebug.reading.comparison import Comparison, compare_records, divergences
from tcdebug.reading.dataflow import Flow, flow
from tcdebug.reading.explanation import Explanation, explain, source_line
from tcdebug.reading.graphs import BEFORE, TEXTS
from tcdebug.reading.inductor_flow import inductor_flow
from tcdebug.reading.ranks import RankComparison, compare_ranks, ranks_of
from tcdebug.reading.run_dir import NoRun, Record, Run, find
from tcdebug.reading.spans import spans
from tcdebug.reading.summary import Summary, graph_name, of_kind, place, summarise
from tcdebug.report.faults import FaultView, faults

OF_COMPILES = ("compile.", "stage.", "pass", "decision", "kernel", "extern", "cache", "remark")
"""Prefixes of event kinds that each candidate of a search repeats. They are omitted."""
INDUCTOR_GRAPH, INDUCTOR_CODE = "inductor_post_grad_graph", "inductor_output_code"
"""The stages whose texts show what inductor's kernels are made of, and the kernels."""
TRANSLATIONS = frozenset(
    {"lower", "schedule", "codegen", "inductor_output_code", "ir_pre_fusion", "ir_post_fusion"}
)
"""Stages whose output differs in kind from their input. Their text is shown alone."""
MOST_SPANS = 4000
MOST_GUARDS = 60
LONGEST_TEXT = 200_000
"""Maximum number of characters kept of one text."""
COMMENTS = re.compile(r"(?:^//.*\n)*\Z", re.MULTILINE)
FUNCTION = re.compile(r"^(?=extern \"C\")", re.MULTILINE)


class ReportStep(msgspec.Struct):
    """A stage or a pass of a graph. Texts are indices into `texts`; -1 means none."""

    name: str
    seconds: float
    nodes: str
    changed: bool
    off: bool
    before: int
    after: int
    depth: int


class GraphView(msgspec.Struct):
    """A graph and its steps in order; `flow` if its loops became kernels."""

    name: str
    steps: list[ReportStep]
    flow: Flow | None = None


class Pair(msgspec.Struct):
    """Two texts shown side by side, as indices into `texts`."""

    title: str
    before: int
    after: int


class Against(msgspec.Struct):
    """A run, or a rank, compared with the first one of the page."""

    name: str
    comparison: Comparison
    pairs: list[Pair]


class Guards(msgspec.Struct):
    """The guards of a compile; `shown` are those on values."""

    compile_id: str
    total: int
    shown: list[str]


class Fuzzed(msgspec.Struct):
    """The programs of a campaign by outcome, and its findings."""

    cases: dict[str, int]
    findings: list[dict[str, Any]]


class RunView(msgspec.Struct):
    """All data that a page has of one run."""

    name: str
    summary: Summary
    explanation: Explanation
    result: str
    report: Report | None
    graphs: list[GraphView]
    kernels: list[dict[str, Any]]
    remarks: list[dict[str, Any]]
    spans: list[list[Any]]
    history: list[dict[str, Any]]
    lines: dict[str, str]
    guards: list[Guards]
    fuzzed: Fuzzed | None
    faults: list[FaultView]
    ranks: RankComparison | None
    """The ranks of the run; None if there are not several."""


class Texts:
    """The texts of a page, each stored once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._number: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the index of a text; -1 for an empty text."""
        if not text:
            return -1
        if len(text) > LONGEST_TEXT:
            text = text[:LONGEST_TEXT] + f"\n... {len(text) - LONGEST_TEXT} more characters"
        if text not in self._number:
            self._number[text] = len(self.all)
            self.all.append(text)
        return self._number[text]


@dataclass(frozen=True)
class Seen:
    """What a page shows under one name: a run, or some of its ranks that did the same."""

    name: str
    run: Run
    records: list[Record]
    ranks: RankComparison | None = None
    """All ranks of the run; None if there are not several."""


def seen(run: Run) -> list[Seen]:
    """Return a run, or the first rank of each group of its ranks that did the same.

    Events without a rank go to the first.
    """
    every = run.events()
    ranks = ranks_of(every)
    if len(ranks) < 2:
        return [Seen(run.path.name, run, every)]
    compared = compare_ranks(run, every)
    return [
        Seen(
            f"{run.path.name} {ranks_text(group.ranks)}",
            run,
            [r for r in every if r.get("rank", ranks[0]) == group.ranks[0]],
            compared,
        )
        for group in compared.groups
    ]


def against(first: Seen, other: Seen, texts: Texts) -> Against:
    """Return the differences, and the texts of the graphs at the first stage that differs."""
    both = first.run, first.records, other.run, other.records
    pairs = [
        Pair(f"{d.graph}: {d.stage}", _kept(d.before, texts), _kept(d.after, texts))
        for d in divergences(*both)
    ]
    return Against(other.name, compare_records(*both), pairs)


def _kept(path: Path, texts: Texts) -> int:
    return texts.add(path.read_text(errors="replace")) if path.is_file() else -1


def view(shown: Seen, texts: Texts) -> RunView:
    """Return the data of a run for a page."""
    run, every = shown.run, shown.records
    history = [_candidate(r) for r in of_kind(every, "candidate", "bisect.step", "minify.step")]
    records = [r for r in every if not history or not r["event"].startswith(OF_COMPILES)]
    found = _report(run)
    graphs = _graphs(run, records, texts, "")
    for fault, inner in _compiles_of_faults(run):
        graphs += _graphs(inner, inner.events(), texts, fault)
    summary = summarise(run, records)
    status = summary.exit_status
    result = found.status if found else ("no end" if status is None else f"exit {status}")
    return RunView(
        shown.name,
        summary,
        explain(run, records),
        result,
        found,
        graphs,
        [_kernel(run, r, texts) for r in of_kind(records, "kernel")],
        [_remark(r) for r in of_kind(records, "remark")],
        _spans(records),
        history,
        _lines(records),
        [_guards(r) for r in of_kind(records, "guard.summary")],
        _fuzzed(every),
        faults(found),
        shown.ranks,
    )


def _lines(records: Sequence[Record]) -> dict[str, str]:
    """Return the text of every line from which a kernel comes, if it can be read."""
    kernels = of_kind(records, "kernel")
    places = {o[3] for kernel in kernels for o in kernel["data"].get("origins") or [] if o[3]}
    return {_short(where): source_line(where) for where in sorted(places)}


def _guards(record: Record) -> Guards:
    data = record["data"]
    return Guards(str(record.get("compile_id", "")), data["total"], data["guards"][:MOST_GUARDS])


def _fuzzed(records: Sequence[Record]) -> Fuzzed | None:
    cases = Counter(r["data"]["status"] for r in of_kind(records, "fuzz.case"))
    findings = [r["data"] for r in of_kind(records, "fuzz.finding")]
    return Fuzzed(dict(cases), findings) if cases or findings else None


def _report(run: Run) -> Report | None:
    path = run.path / REPORT
    return msgspec.json.decode(path.read_bytes(), type=Report) if path.exists() else None


def _compiles_of_faults(run: Run) -> Iterable[tuple[str, Run]]:
    """Yield the compiles with and without each fault that a bisection keeps."""
    for folder in sorted(run.path.glob("stages/*/*")):
        try:
            yield f"fault {folder.parent.name}, {folder.name}: ", find(str(folder))
        except NoRun:
            continue


def _graphs(run: Run, records: Sequence[Record], texts: Texts, prefix: str) -> list[GraphView]:
    """Return the graphs of a run, each with its stages, and the passes inside them."""
    graphs: dict[str, GraphView] = {}
    last: dict[str, int] = {}
    waiting: dict[str, list[ReportStep]] = {}
    for record in records:
        kind = record["event"]
        if kind not in TEXTS:
            continue
        name = graph_name(record)
        text = texts.add(_text(run, record["data"].get("artifact")))
        if kind == "stage.start":
            if text >= 0:
                last[name] = text
            waiting[name] = []
            continue
        step = _step(record, last.get(name, -1), text)
        last[name] = step.after
        if kind == "pass":
            waiting.setdefault(name, []).append(step)
            continue
        graph = graphs.setdefault(name, GraphView(prefix + name, []))
        inside = waiting.pop(name, [])
        if inside:
            step.before = inside[0].before
        graph.steps += [step, *inside]
    kernels = of_kind(records, "kernel")
    for name, graph in graphs.items():
        computes = {
            k["data"]["name"]: k["data"]["computes"] for k in kernels if graph_name(k) == name
        }
        graph.flow = _flow(graph, computes, texts) or _inductor_flow(
            graph,
            [r["data"] for r in of_kind(records, "graph.step") if graph_name(r) == name],
            texts,
        )
    return [g for g in graphs.values() if any(s.after >= 0 for s in g.steps)]


def _flow(graph: GraphView, computes: dict[str, list[str]], texts: Texts) -> Flow | None:
    """Return the data flow of a graph that the embedded compiler turned into kernels."""
    left = {s.name: s.after for s in graph.steps if s.name in ("lower", "inline")}
    if len(left) < 2 or min(left.values()) < 0 or not computes:
        return None
    return flow(texts.all[left["lower"]], texts.all[left["inline"]], computes)


def _inductor_flow(graph: GraphView, calls: Sequence[dict[str, Any]], texts: Texts) -> Flow | None:
    """Return the data flow of a graph that inductor compiled. `calls` are its recorded calls."""
    text = {s.name: texts.all[s.after] for s in graph.steps if s.after >= 0}
    if INDUCTOR_GRAPH not in text or INDUCTOR_CODE not in text:
        return None
    computed = {c["name"]: c["nodes"] for c in calls if c["generated"]}
    return inductor_flow(text[INDUCTOR_GRAPH], text[INDUCTOR_CODE], computed)


def _step(record: Record, before: int, text: int) -> ReportStep:
    data = record["data"]
    kind = record["event"]
    name = str(record.get("unit") or record.get("stage")).removeprefix(BEFORE)
    sizes = (data.get("nodes_before", 0), data.get("nodes_after", 0))
    changed = text >= 0 and text != before
    return ReportStep(
        name=name,
        seconds=float(data.get("seconds", 0.0)),
        nodes=f"{sizes[0]} → {sizes[1]}" if any(sizes) else "",
        changed=changed,
        off=not data.get("allowed", True),
        before=-1 if name in TRANSLATIONS else before,
        after=text if text >= 0 else before,
        depth=int(kind == "pass"),
    )


def _text(run: Run, artifact: str | None) -> str:
    if not artifact:
        return ""
    path = run.path / artifact
    return path.read_text(errors="replace") if path.exists() else ""


def _kernel(run: Run, record: Record, texts: Texts) -> dict[str, Any]:
    data = record["data"]
    return {
        "name": data["name"],
        "graph": graph_name(record),
        "moved": data["moved"],
        "computes": data["computes"],
        "origins": [
            [node, aten, op, _short(where)] for node, aten, op, where in data.get("origins") or []
        ],
        "text": texts.add(_function(_text(run, data["source"]), data.get("code") or data["name"])),
    }


def _function(code: str, name: str) -> str:
    """Return one kernel of a file with the comments above it; the whole file if it is not found."""
    pieces = FUNCTION.split(code)
    for before, piece in pairwise(pieces):
        if f" {name}(" in piece:
            return COMMENTS.search(before)[0] + COMMENTS.sub("", piece)  # type: ignore[index] # matches the empty text too
    return code


def _remark(record: Record) -> dict[str, Any]:
    data = record["data"]
    where = _short(place(record))
    return {k: data[k] for k in ("verdict", "message", "moved")} | {
        "where": where, "graph": graph_name(record),
    }  # fmt: skip


def _spans(records: Sequence[Record]) -> list[list[Any]]:
    """Return [name, kind, start, seconds, process, depth] of the longest spans, in order."""
    found = spans(records)
    if len(found) > MOST_SPANS:
        least = sorted((s.seconds for s in found), reverse=True)[MOST_SPANS]
        found = [s for s in found if s.seconds > least]
    rows: list[list[Any]] = []
    open_: list[tuple[int, float]] = []
    for span in found:
        middle = span.start + span.seconds / 2
        while open_ and (open_[-1][0] != span.pid or open_[-1][1] < middle):
            open_.pop()
        graph = graph_name(span.record) if span.kind != "compile.end" else ""
        label = f"{span.name} {graph}".strip()
        times = (round(span.start, 6), round(span.seconds, 6))
        rows.append([label, span.kind, *times, span.pid, len(open_)])
        open_.append((span.pid, span.end))
    return rows


def _candidate(record: Record) -> dict[str, Any]:
    """Return a step of a search, with its time."""
    return {"kind": record["event"], "at": round(record.get("t_ns", 0) / 1e9, 2), **record["data"]}


def _short(where: str) -> str:
    """Return a place with the last two parts of its path."""
    return "/".join(Path(where).parts[-2:]) if where else ""
