"""Texts that several screens show: numbers with nouns, paths, clipped messages."""

from __future__ import annotations

import os

from rich.markup import escape


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 graph, 2 graphs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short_path(path: str) -> str:
    """Return the shorter of the relative and the absolute path."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


def short_place(where: str) -> str:
    """Return FILE:N as markup, with the shorter of the relative and the absolute path."""
    filename, colon, line = where.rpartition(":")
    return escape(f"{short_path(filename)}{colon}{line}") if filename else ""


def short_line(line: str) -> str:
    """Return "FILE:N in FUNCTION: CODE" as markup, with the file as a short path."""
    filename, colon, rest = line.partition(":")
    return escape(f"{short_path(filename)}{colon}{rest}") if colon else escape(line)


def clipped(text: str, most: int) -> str:
    """Return at most `most` characters of a text, cut between words, with an ellipsis if cut."""
    if len(text) <= most:
        return text
    head = text[:most].rpartition(" ")[0] or text[: most - 1]
    return f"{head.rstrip(' ,;:')}…"


def first_line(text: str, most: int) -> str:
    """Return the first line of a message, escaped so that brackets are not markup."""
    return escape(text.strip().partition("\n")[0][:most])


def omitted(number: int) -> str:
    """Return the last line, as markup, of a list that is shown without some of its entries."""
    return f"[dim]and {number} more, see --json[/]"
