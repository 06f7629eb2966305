"""Two consoles: results go to stdout, everything else to stderr."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.theme import Theme

THEME = Theme(
    {
        "good": "green",
        "bad": "bold red",
        "unit": "bold cyan",
        "path": "bold",
        "dim": "dim",
        "warn": "yellow",
    }
)


def results() -> Console:
    """Return the console for results. In a pipe it writes plain text without wrapping."""
    return Console(theme=THEME, highlight=False, soft_wrap=True)


def messages() -> Console:
    """Return the console for progress, notes and errors."""
    return Console(theme=THEME, highlight=False, stderr=True, soft_wrap=True)


def error(code: str, what: str, next_step: str = "") -> None:
    """Print an error: a code of `codes.CODES`, the problem, and the next step."""
    console = messages()
    console.print(f"[bad]error[/] {code}: {escape(what)}")
    console.print(f"[dim]next[/]  {escape(next_step or f'tcdebug explain {code}')}")


def write(text: str) -> None:
    """Write text to stdout unchanged, for other programs or for pasting."""
    sys.stdout.write(text)


def note(text: str) -> None:
    """Print one line of information."""
    messages().print(f"tcdebug: {escape(text)}")
