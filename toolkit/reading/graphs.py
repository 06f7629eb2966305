"""The graphs of a run, and the texts that their stages and passes left, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tcdebug.reading.summary import graph_name
from tcdebug.run_dir import Record

TEXTS = ("stage.start", "pass", "stage.end", "stage.text")
"""Kinds that may name the text of a graph."""
BEFORE = "before"
NOISE = re.compile(r"#.*|//.*|/[\w./-]+\.(?:py|cpp|so|h)\b|0x[0-9a-f]+|\bc[0-9a-z]{51}\b")
"""What differs between runs without meaning anything: comments, paths, addresses, hashes."""


@dataclass
class GraphStages:
    """A graph: the text of each stage or pass that wrote one, by name, in order."""

    name: str
    texts: dict[str, str] = field(default_factory=dict)
    """Stage or pass -> path relative to the run folder."""
    complete: bool = True
    """Whether a stage without a text has left the graph as it was; torch's may just not tell."""


def graph_stages(records: Iterable[Record]) -> dict[str, GraphStages]:
    """The graphs of a run by name: 0/0 forward."""
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


def meaning(path: Path) -> str:
    """The text of a file without what differs for no reason; empty where there is no file."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    lines = (" ".join(NOISE.sub("", line).split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
