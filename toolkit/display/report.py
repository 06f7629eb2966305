"""The last thing a person reads: what failed, who is at fault, where the repro is, what next."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tcdebug.display.console import messages, results
from tcdebug.minifier.report import Report
from tcdebug.minifier.verify import settle

HEADLINES = {
    "confirmed": "[good]found[/] and confirmed both ways",
    "minimized": "[good]minimised[/]",
    "unconfirmed": "[warn]it fails, but no culprit was confirmed[/]",
    "no_failure": "nothing fails",
    "fails_in_eager": "the script fails in eager too",
    "budget": "[warn]the budget is used up[/]; this is the best so far",
    "interrupted": "[warn]interrupted[/]; the same command goes on from here",
}


def show_report(report: Report, console: Console | None = None) -> None:
    """Print a report."""
    out = console or results()
    rows: list[tuple[str, str]] = []
    if report.failure is not None:
        failure = report.failure
        detail = escape(" ".join(failure.message.split())[:200])
        rows.append(("failure", f"[bad]{failure.kind}[/] in {failure.direction}: {detail}"))
    for culprit in report.culprits:
        rows.append(
            (
                "culprit",
                f"[unit]{culprit.unit}[/] at {escape(culprit.subject)} "
                f"[dim](site {culprit.site}, decision {culprit.ordinal})[/]",
            )
        )
    if report.nodes_before:
        graph = "" if report.graph is None else f" of graph {report.graph}"
        rows.append(("graph", f"{report.nodes_before} -> {report.nodes_after} nodes{graph}"))
    if report.reruns:
        cost = f"{report.reruns} runs, {report.seconds:.0f} s, {report.cpu_seconds:.0f} CPU-s"
        rows.append(("cost", cost))
    rows += [("note", escape(note)) for note in report.notes]
    if report.run_dir:
        rows.append(("log", f"tcdebug logs {_relative(report.run_dir)}"))
    if report.culprits:
        off = " ".join(f"--off={u}" for u in dict.fromkeys(c.unit for c in report.culprits))
        rows.append(("passes", f"python {_relative(report.repro or '')} {off}"))
    if report.repro:
        rows.append(("repro", f"[path]{_relative(report.repro)}[/]"))
    out.print(HEADLINES[report.status])
    for name, text in rows:
        out.print(f"  [dim]{name:<8}[/] {text}")


def announce_repros(paths: Sequence[Path], *, hints: bool = True) -> None:
    """Run the repros that failures left, and say where they are: a path is the last thing said.

    `hints` say before each what to do with it.
    """
    for path in paths:
        hint = (
            f"next  tcdebug bisect {_relative(str(path))}"
            if settle(path)
            else "the repro does not fail by itself: bisect the script"
        )
        console = messages()
        if hints:
            console.print(f"tcdebug: {hint}")
        console.print(f"tcdebug: repro [path]{path}[/]")


def _relative(path: str) -> str:
    """A path as short as it gets from here."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path
