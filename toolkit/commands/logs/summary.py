"""tcdebug logs summary"""

from __future__ import annotations

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, write
from tcdebug.display.summary import show_summary
from tcdebug.reading.run_dir import NoRun, find
from tcdebug.reading.summary import summarise


def run(*, run_name: str | None, as_json: bool) -> int:
    """Summarise a run; 2 if there is none."""
    try:
        found = find(run_name)
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    summary = summarise(found, found.events())
    if as_json:
        write(msgspec.json.encode(summary).decode() + "\n")
    else:
        show_summary(summary)
    return 0
