"""Shows a comparison of two runs on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.text import counted, omitted
from tcdebug.reading.comparison import Change, Comparison

MOST = 8
"""Maximum number of rows shown per part; `--json` has all."""
PARTS = (
    ("environment and settings", "environment"),
    ("graph breaks", "breaks"),
    ("recompiles", "recompiles"),
    ("graphs, and the first stage that differs", "graphs"),
    ("decisions", "decisions"),
    ("kernels", "kernels"),
    ("calls of ATen", "externs"),
    ("caches", "caches"),
    ("seconds by stage", "stages"),
)
"""The parts of a comparison, causes before effects: title, field."""


def show_comparison(found: Comparison) -> None:
    """Print the differences by part, causes before effects."""
    out = results()
    gap = found.seconds_b - found.seconds_a
    way = "slower" if gap > 0 else "faster"
    word = "the same" if abs(gap) < 0.005 else f"{abs(gap):.2f} s {way}"
    out.print(f"[bad]- {escape(found.run_a)}[/]")
    out.print(f"[good]+ {escape(found.run_b)}[/]")
    out.print(f"compiling {found.seconds_a:.2f} s -> {found.seconds_b:.2f} s, {word}")
    for title, field in PARTS:
        changes = getattr(found, field)
        _part(out, title, _by_unit(changes) if field == "decisions" else changes)
    if not found.differs:
        out.print("nothing differs except times and caches")


def _by_unit(changes: Sequence[Change]) -> Sequence[Change]:
    """Return the decisions that differ; if there are many, their number by unit."""
    if len(changes) <= MOST:
        return changes
    rows = Counter((c.what.partition(" ")[0], c.before, c.after) for c in changes)
    return [
        Change(f"{unit}, {counted(times, 'time')}", before, after)
        for (unit, before, after), times in rows.most_common()
    ]


def _part(out: Console, title: str, changes: Sequence[Change]) -> None:
    if not changes:
        return
    out.print(f"[unit]{title}[/] [dim]{counted(len(changes), 'change')}[/]")
    for change in changes[:MOST]:
        before = f"[bad]{escape(change.before[:80])}[/]" if change.before else "[dim]-[/]"
        after = f"[good]{escape(change.after[:80])}[/]" if change.after else "[dim]-[/]"
        out.print(f"  {escape(change.what[:100])}: {before} -> {after}")
    if len(changes) > MOST:
        out.print(f"  {omitted(len(changes) - MOST)}")
