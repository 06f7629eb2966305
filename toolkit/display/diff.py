"""Shows two texts of IR as a unified diff."""

from __future__ import annotations

import difflib

from rich.markup import escape

from tcdebug.display.console import results

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def show_diff(title: str, before: str, after: str) -> None:
    """Print the changes with three lines of context."""
    console = results()
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=3
    )
    console.print(f"[unit]{title}[/]")
    for line in lines:
        console.print(coloured(line))


def coloured(line: str) -> str:
    """Return a line of a diff as markup."""
    colour = COLOURS.get(line[:1])
    return f"[{colour}]{escape(line)}[/]" if colour else escape(line)
