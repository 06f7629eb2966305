"""tcdebug bisect"""

from __future__ import annotations

from typing import Any

from tcdebug.commands.search import search


def run(*, minify: bool, **arguments: Any) -> int:
    """Find the culprit and write a repro. Return the exit status."""
    return search("bisect", bisecting=True, minimising=minify, **arguments)
