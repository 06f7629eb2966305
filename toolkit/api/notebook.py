"""Runs in a notebook: a cell shows a run as its report and a diff as a table."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff
from html import escape

from tcdebug.reading.graphs import GraphChange, changes_of
from tcdebug.reading.run_dir import Run, find
from tcdebug.report.page import render

HEIGHT = 640
"""Height of a report in a cell, in pixels."""
AROUND = 3
"""Number of equal lines shown around a change."""
CELL = "font-family:monospace;white-space:pre-wrap;text-align:left;vertical-align:top;padding:0 6px"
GONE, ADDED = "background:rgba(220,60,50,.22);", "background:rgba(40,160,80,.22);"


class Recorded:
    """A run. A notebook renders it as its report, in a frame without network access."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def diff(self, unit: str, graph: str | None = None) -> Diff:
        """Return the changes by a pass or a stage: `diff("lower")`, `diff("passes", "0/0")`."""
        return Diff(changes_of(self.run, unit, graph))

    def __repr__(self) -> str:
        return f"<run {self.run.path}: tcdebug report {self.run.path.name}>"

    def _repr_html_(self) -> str:
        page = escape(render([self.run]), quote=True)
        frame = f'sandbox="allow-scripts" width="100%" height="{HEIGHT}" style="border:0"'
        return f'<iframe {frame} srcdoc="{page}"></iframe>'


class Diff:
    """Graphs before and after a pass or a stage. A notebook shows them side by side."""

    def __init__(self, changes: Sequence[GraphChange]) -> None:
        self.changes = list(changes)

    def __str__(self) -> str:
        lines: list[str] = []
        for change in self.changes:
            texts = change.before.splitlines(), change.after.splitlines()
            lines += [change.title, *unified_diff(*texts, "before", "after", lineterm="", n=AROUND)]
        return "\n".join(lines) or "no graph changed"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = [f"<b>{escape(c.title)}</b>{_table(c)}" for c in self.changes]
        return "".join(tables) or "<i>no graph changed</i>"


def _table(change: GraphChange) -> str:
    """Return a table of two columns: changes with the lines around them."""
    before, after = change.before.splitlines(), change.after.splitlines()
    rows: list[str] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        if rows:
            rows.append(f'<tr><td colspan="2" style="{CELL}">…</td></tr>')
        for kind, low, high, first, last in group:
            left, right = before[low:high], after[first:last]
            for k in range(max(len(left), len(right))):
                rows.append(f"<tr>{_cell(left, k, kind, GONE)}{_cell(right, k, kind, ADDED)}</tr>")
    return f'<table style="width:100%;table-layout:fixed">{"".join(rows)}</table>'


def _cell(lines: Sequence[str], k: int, kind: str, colour: str) -> str:
    style = CELL if kind == "equal" or k >= len(lines) else colour + CELL
    return f'<td style="{style}">{escape(lines[k]) if k < len(lines) else ""}</td>'


def recorded(name: str | None = None) -> Recorded:
    """Return the run with this folder or beginning of its name, or the newest run. Raises NoRun."""
    return Recorded(find(name))
