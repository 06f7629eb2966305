"""Shows lists: checks of doctor, units, runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.table import Table

from tcdebug.display.console import results


def show_checks(rows: Iterable[Sequence[object]]) -> None:
    """Print one line per (name, good, detail, advice)."""
    console = results()
    for name, good, detail, advice in rows:
        mark = "[good]ok  [/]" if good else "[bad]FAIL[/]"
        console.print(f"{mark} {name:<11} {escape(str(detail))}")
        if not good and advice:
            console.print(f"     {'':<11} [dim]{escape(str(advice))}[/]")


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; in a pipe, or if the terminal is too narrow, blanks separate its columns.

    A name is never broken, so that it can be copied.
    """
    console = results()
    lines = [[*columns], *map(list, rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
    if not console.is_terminal or sum(widths) + len(widths) > console.width:
        for line in lines:
            cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            console.print("  ".join(cells).rstrip(), markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for line in lines[1:]:
        table.add_row(*(escape(cell) for cell in line))
    console.print(table)
