"""Shows the first step of compiled code whose values are wrong."""

from __future__ import annotations

from rich.markup import escape

from tcdebug.display.console import results
from tcdebug.display.text import short_line, short_path
from tcdebug.minifier.values.findings import BITWISE, ComparedValue, ValuesReport, WrongStep

MOST_SOURCE = 40
"""The limit on lines of a kernel."""


def show_values(report: ValuesReport) -> None:
    """Print the finding, or that there is none, and what was compared."""
    out = results()
    if report.found is not None:
        _show_finding(report.found)
    else:
        out.print(f"[good]{_nothing_wrong(report)}[/]")
    for text in report.unexplained:
        out.print(f"[bad]wrong[/]     {escape(text)}")
    if report.graphs:
        out.print(
            f"[dim]compared[/]  {report.values} values of {report.steps} steps in {report.calls} "
            f"calls of {report.graphs} graphs"
        )
    if report.whole:
        out.print(f"[dim]compared[/]  the results of {report.whole} calls")
    for reason, count in report.unjudged.items():
        out.print(f"[dim]skipped[/]   {count} values: {escape(reason)}")
    for text in report.notes:
        out.print(f"[dim]note[/]      {escape(text)}")
    out.print(
        f"[dim]log[/]       tcdebug logs query {escape(short_path(report.folder))} --event value"
    )


def _nothing_wrong(report: ValuesReport) -> str:
    """Say what was found to be right. Values that were not compared may be wrong."""
    if report.steps == 0 and report.whole == 0:
        return "nothing was compared"
    what = "step" if report.steps else "graph"
    if report.twice:
        return f"no {what}'s bits differ"
    if report.oracle == BITWISE:
        return f"every compared {'value' if report.steps else 'graph'} has the bits of eager"
    return f"no {what} differs from eager by more than rounding explains"


def _show_finding(found: WrongStep) -> None:
    out = results()
    where = f"step {found.step} of " if found.step else ""
    out.print(
        f"[bad]{found.kind}[/] [unit]{escape(found.name)}[/]: {where}graph {found.graph} "
        f"({found.direction}), call {found.call}"
    )
    out.print(f"[dim]wrong[/]     {escape(found.reason)}")
    if found.value is not None:
        for line in _value_lines(found.value):
            out.print(line)
    if found.suspects:
        names = ", ".join(found.suspects)
        out.print(f"[dim]or[/]        {escape(names)}: no node describes what it wrote")
    rows = [("node", escape(text)) for text in found.nodes]
    rows += [("line", short_line(text)) for text in found.lines]
    for label, text in rows:
        out.print(f"[dim]{label}[/]      {text}", soft_wrap=True)
    if found.path:
        out.print(f"[dim]file[/]      {escape(found.path)}")
    lines = found.source.strip().splitlines()
    for line in lines[:MOST_SOURCE]:
        out.print(f"  {escape(line)}", soft_wrap=True)
    if len(lines) > MOST_SOURCE:
        out.print(f"  [dim]{len(lines) - MOST_SOURCE} more lines[/]")


def _value_lines(value: ComparedValue) -> list[str]:
    shape = ", ".join(map(str, value.shape))
    lines = [
        f"[dim]value[/]     {escape(f'{value.buffer} = {value.node}: {value.dtype}[{shape}]')}"
    ]
    if value.error is not None and value.eager_error is not None:
        lines.append(
            f"[dim]error[/]     {value.error:.3g} ulp from float64; eager's is "
            f"{value.eager_error:.3g} ulp"
        )
    lines.append(f"[dim]hash[/]      {value.hash}; eager's is {value.eager_hash}")
    return lines
