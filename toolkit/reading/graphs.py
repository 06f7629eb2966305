"""The graphs of a run, with the texts of their stages and passes in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.compiler.gate.toggles import belongs
from tcdebug.reading.run_dir import Record, Run
from tcdebug.reading.summary import graph_name

TEXTS = ("stage.start", "pass", "stage.end", "stage.text")
"""Kinds of events that may name the text of a graph."""
BEFORE = "before"
NOISE = re.compile(r"#.*|//.*|/[\w./-]+\.(?:py|cpp|so|h)\b|0x[0-9a-f]+|\bc[0-9a-z]{51}\b")
"""Differences between runs that mean nothing: comments, paths, addresses, hashes."""


@dataclass
class GraphStages:
    """A graph: the texts of its stages and passes by name, in order."""

    name: str
    texts: dict[str, str] = field(default_factory=dict)
    """Path by stage or pass, relative to the run folder."""
    complete: bool = True
    """Whether a stage without a text left the graph unchanged. Stages of torch may just omit it."""


def graph_stages(records: Iterable[Record]) -> dict[str, GraphStages]:
    """Return the graphs of a run by name, such as 0/0 forward."""
    found: dict[str, GraphStages] = {}
    for record in records:
        path = record.get("data", {}).get("artifact")
        if record.get("event") not in TEXTS or not path:
            continue
        graph = found.setdefault(graph_name(record), GraphStages(graph_name(record)))
        name = str(record.get("unit") or record.get("stage"))
        if record["event"] == "stage.start":
            name = f"{BEFORE} {name}"
        graph.texts[name] = path
        graph.complete = graph.complete and record["event"] != "stage.text"
    return found


@dataclass(frozen=True)
class GraphChange:
    """A graph before and after a pass or a stage."""

    title: str
    before: str
    after: str


def changes_of(run: Run, unit: str, compile_id: str | None = None) -> list[GraphChange]:
    """Return every change that a unit, a family of units or a stage made to a graph, in order."""
    found: list[GraphChange] = []
    last: dict[str, str] = {}
    for record in run.events():
        path = record.get("data", {}).get("artifact")
        if not path:
            continue
        graph = graph_name(record)
        name = str(record.get("unit") or record.get("stage"))
        fits = compile_id is None or record.get("compile_id") == compile_id
        if fits and record["event"] != "stage.start" and (name == unit or belongs(name, unit)):
            before, after = (_text(run, p) for p in (last.get(graph, ""), path))
            found.append(GraphChange(f"{name} on {graph}", before, after))
        last[graph] = path
    return found


def _text(run: Run, path: str) -> str:
    return (run.path / path).read_text() if path else ""


def meaning(path: Path) -> str:
    """Return the text of a file without meaningless differences; empty if there is no file."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    lines = (" ".join(NOISE.sub("", line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
