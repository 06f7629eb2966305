"""Shows the summary of a run on one screen."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.text import clipped, omitted
from tcdebug.reading.breaks import Break
from tcdebug.reading.summary import RecompileRow, Summary

MOST_ROWS = 8
"""Maximum number of lines shown per part; `--json` has all."""
BAR = 20


def show_summary(summary: Summary) -> None:
    """Print where the time went, and what can be improved."""
    out = results()
    end = "" if summary.exit_status is None else f", exit status {summary.exit_status}"
    out.print(f"[path]{summary.run}[/]  {escape(summary.command)}")
    share = 100 * summary.compile_seconds / summary.seconds if summary.seconds else 0
    out.print(
        f"{summary.seconds:.1f} s{end}; compiling {summary.compile_seconds:.1f} s"
        f" ({share:.0f} %), {len(summary.compiles)} compiles by Dynamo"
    )
    _stages(out, summary)
    _kernels(out, summary)
    externs = [f"{e.calls:5}  {e.op}  [dim]{escape(e.reason)}[/]" for e in summary.externs]
    _part(out, "calls of ATen", externs)
    _part(out, "graph breaks", [line for b in summary.breaks for line in break_lines(b)], 24)
    _part(out, "recompiles", [recompile_line(r) for r in summary.recompiles])
    caches = [
        f"{c.cache}: " + ", ".join(f"{n} {verdict}" for verdict, n in c.verdicts.items())
        for c in summary.caches
    ]
    _part(out, "caches", caches)
    _part(out, "checks", summary.checks)
    _part(out, "fallbacks", [escape(clipped(f, 200)) for f in summary.fallbacks])
    _part(out, "failures", [f"[bad]{escape(clipped(f, 200))}[/]" for f in summary.failures])


def _stages(out: Console, summary: Summary) -> None:
    most = max((s.seconds for s in summary.stages), default=0.0)
    lines = []
    for stage in summary.stages:
        bar = "█" * round(BAR * stage.seconds / most) if most else ""
        share = 100 * stage.seconds / summary.compile_seconds if summary.compile_seconds else 0
        lines.append(
            f"{stage.seconds:8.3f} s {share:3.0f} %  {escape(stage.stage):<16} "
            f"[dim]x{stage.runs:<4}[/] [good]{bar}[/]"
        )
    _part(out, "time by stage, without nested stages", lines, 16)


def _kernels(out: Console, summary: Summary) -> None:
    lines = [
        f"{size(k.moved) if k.moved else '?':>9}  [unit]{k.name}[/] [dim]{k.graph}[/]"
        for k in summary.kernels
    ]
    _part(out, f"{len(summary.kernels)} kernels, by bytes moved", lines)


def break_lines(found: Break) -> list[str]:
    """Return a graph break: the place, the cause, the explanation and remedies."""
    times = f" [dim]x{found.times}[/]" if found.times > 1 else ""
    name = f" [dim]{found.id}[/]" if found.id else ""
    what = escape(clipped(found.what, 160))
    lines = [f"[path]{escape(found.where) or '?'}[/]  {what}{name}{times}"]
    if found.explanation:
        lines.append(f"    {escape(clipped(found.explanation, 240))}")
    lines += [f"    [good]do[/] {escape(hint)}" for hint in found.hints[:2]]
    return lines


def recompile_line(row: RecompileRow) -> str:
    """Return a recompile: the guard that failed, the value that changed, the cost."""
    why = "; ".join(row.changed) or "; ".join(row.reasons)
    cost = f" [dim]{row.seconds:.1f} s[/]" if row.seconds else ""
    frame = f" {escape(row.frame)}" if row.frame else ""
    what = escape(clipped(why, 200))
    return f"{row.compile_id}{frame} [path]{escape(row.where)}[/]  {what}{cost}"


def size(count: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _part(out: Console, title: str, lines: list[str], most: int = MOST_ROWS) -> None:
    """Print a heading and its lines, if there are any."""
    if not lines:
        return
    out.print(f"[dim]{title}[/]")
    for line in lines[:most]:
        out.print(f"  {line}")
    if len(lines) > most:
        out.print(f"  {omitted(len(lines) - most)}")
