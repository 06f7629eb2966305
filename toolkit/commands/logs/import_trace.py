"""tcdebug logs import"""

from __future__ import annotations

from pathlib import Path

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, note, write
from tcdebug.reading.torch_files import NoTrace, imported


def run(*, source: Path) -> int:
    """Import TORCH_TRACE files as a run and print its folder; 2 if there are none."""
    try:
        made, what = imported(source)
    except NoTrace as problem:
        error("TCD007", str(problem), "write one with TORCH_TRACE=trace python script.py")
        return USAGE
    note(f"{what}; next  tcdebug logs summary {made.path}")
    write(f"{made.path}\n")
    return 0
