"""The two consoles: results to stdout, everything else to stderr."""

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
    """For what was asked for; piped, it is plain text of full width."""
    return Console(theme=THEME, highlight=False, soft_wrap=True)


def messages() -> Console:
    """For progress, notes and errors."""
    return Console(theme=THEME, highlight=False, stderr=True, soft_wrap=True)


def error(code: str, what: str, next_step: str = "") -> None:
    """An error message: its code of `codes.CODES`, what is wrong, and what to do."""
    console = messages()
    console.print(f"[bad]error[/] {code}: {escape(what)}")
    console.print(f"[dim]next[/]  {escape(next_step or f'tcdebug explain {code}')}")


def write(text: str) -> None:
    """Text on stdout as it is, for other programs or to be pasted."""
    sys.stdout.write(text)


def note(text: str) -> None:
    """One line about what is going on."""
    messages().print(f"tcdebug: {escape(text)}")


def first_line(text: str, most: int) -> str:
    """The beginning of a message, as it is: brackets in it are no markup."""
    return escape(text.strip().partition("\n")[0][:most])
