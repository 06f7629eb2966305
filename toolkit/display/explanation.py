"""Shows on one screen how torch.compile compiled a script."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from tcdebug.compiler.errors.codes import Code
from tcdebug.display.console import THEME, results
from tcdebug.display.text import clipped, counted, omitted, short_path, short_place
from tcdebug.reading.breaks import read_break
from tcdebug.reading.explanation import BreakCost, Explanation, RecompileCost

MOST = 6
"""Maximum number of entries shown per part; `--json` has all."""


def show_explanation(found: Explanation) -> None:
    """Print the parts that are not empty, with the most expensive entries first."""
    out = results()
    out.print(_headline(found))
    _part(out, "frames", [_frame_line(found, k) for k in range(len(found.frames))])
    _part(out, "graph breaks", [_break_lines(b) for b in found.breaks])
    _part(out, "recompiles", [_recompile_lines(r) for r in found.recompiles])
    constants = [[escape(clipped(c, 120))] for c in found.constants]
    _part(out, "constants: a different value recompiles", constants)
    externs = [[f"{e.op} x{e.calls}  [dim]{escape(e.reason)}[/]"] for e in found.externs]
    _part(out, "left to ATen or a library", externs)
    _part(out, "fallbacks", [[escape(clipped(f, 200))] for f in found.fallbacks])
    _part(out, "failures", [_failure_lines(f) for f in found.failures])
    out.print(f"[dim]next[/]  tcdebug logs summary {short_path(found.run)}")


def show_code(code: Code) -> None:
    """Print what an error means and what to do."""
    out = Console(theme=THEME, highlight=False)
    out.print(f"[unit]{code.name}[/]  {escape(code.title)}\n")
    out.print(f"{escape(code.why)}\n")
    out.print(f"[good]do[/]  {escape(code.todo)}")


def _headline(found: Explanation) -> str:
    compiles = sum(f.compiles for f in found.frames)
    parts = [
        counted(compiles, "graph"),
        counted(len(found.frames), "frame"),
        counted(len(found.breaks), "graph break"),
        counted(len(found.recompiles), "recompile"),
        counted(found.guards, "guard"),
        counted(found.kernels, "kernel"),
    ]
    return f"{', '.join(parts)}; compiling {found.compile_seconds:.1f} s of {found.seconds:.1f} s"


def _frame_line(found: Explanation, k: int) -> list[str]:
    frame = found.frames[k]
    return [
        f"{frame.seconds:7.1f} s  {escape(frame.name)} [path]{short_place(frame.where)}[/]  "
        f"[dim]{counted(frame.compiles, 'graph')}, up to {frame.nodes} nodes and "
        f"{frame.guards} guards[/]"
    ]


def _break_lines(cost: BreakCost) -> list[str]:
    found = cost.graph_break
    name = f" [dim]{found.id}[/]" if found.id else ""
    lines = [
        f"[path]{short_place(found.where) or '?'}[/]  {escape(cost.source)}",
        f"  {escape(clipped(found.what, 160))}{name}",
    ]
    if found.explanation:
        lines.append(f"  [dim]why[/]   {escape(clipped(found.explanation, 240))}")
    lines += [f"  [good]do[/]    {escape(hint)}" for hint in found.hints[:2]]
    price = f"{counted(cost.graphs, 'graph')} after the break, {cost.seconds:.1f} s"
    lines.append(f"  [dim]costs[/] {price}; reached {counted(found.times, 'time')}")
    return lines


def _failure_lines(text: str) -> list[str]:
    """Return a failure, with Dynamo's explanation and remedies if it gives any."""
    found = read_break(text, "")
    if not found.explanation and not found.hints:
        return [f"[bad]{escape(clipped(' '.join(text.split()), 200))}[/]"]
    lines = [f"[bad]{escape(clipped(found.what, 160))}[/]"]
    if found.explanation:
        lines.append(f"  [dim]why[/]   {escape(clipped(found.explanation, 400))}")
    return [*lines, *(f"  [good]do[/]    {escape(hint)}" for hint in found.hints)]


def _recompile_lines(cost: RecompileCost) -> list[str]:
    row = cost.recompile
    lines = [
        f"{row.compile_id} {escape(row.frame)} [path]{short_place(row.where)}[/]  "
        f"{escape(cost.source)}",
        f"  {escape(clipped(cost.cause, 200))}",
    ]
    lines += [f"  [good]do[/]    {escape(remedy)}" for remedy in cost.advice]
    lines.append(f"  [dim]costs[/] {row.seconds:.1f} s")
    return lines


def _part(out: Console, title: str, entries: list[list[str]]) -> None:
    if not entries:
        return
    out.print(f"[unit]{title}[/]")
    for lines in entries[:MOST]:
        for line in lines:
            out.print(f"  {line}")
    if len(entries) > MOST:
        out.print(f"  {omitted(len(entries) - MOST)}")
