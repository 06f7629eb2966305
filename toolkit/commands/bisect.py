"""tcdebug bisect"""

from __future__ import annotations

from typing import Any

from tcdebug.commands.search import SearchOptions, search


def run(*, minify: bool, **options: Any) -> int:
    """Find the culprit and write a repro. Return the exit status."""
    return search("bisect", SearchOptions(**options), bisect=True, minimise=minify)
