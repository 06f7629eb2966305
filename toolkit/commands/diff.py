"""tcdebug diff"""

from __future__ import annotations

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.display.comparison import show_comparison
from tcdebug.display.console import error, write
from tcdebug.reading.comparison import compare
from tcdebug.reading.run_dir import NoRun, find


def run(*, run_a: str, run_b: str, as_json: bool) -> int:
    """Compare two runs; 1 if anything except times differs, 2 if a run is missing."""
    try:
        first, second = find(run_a), find(run_b)
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    comparison = compare(first, second)
    if as_json:
        write(msgspec.json.encode(comparison).decode() + "\n")
    else:
        show_comparison(comparison)
    return int(comparison.differs)
