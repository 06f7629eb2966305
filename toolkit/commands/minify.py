"""tcdebug minify"""

from __future__ import annotations

from typing import Any

from tcdebug.commands.search import search


def run(**arguments: Any) -> int:
    """Minimise the failing graph and write a repro. Return the exit status."""
    return search("minify", bisecting=False, minimising=True, **arguments)
