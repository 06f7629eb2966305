"""tcdebug minify"""

from __future__ import annotations

from typing import Any

from tcdebug.commands.search import SearchOptions, search


def run(**options: Any) -> int:
    """Minimise the failing graph and write a repro. Return the exit status."""
    return search("minify", SearchOptions(**options), bisect=False, minimise=True)
