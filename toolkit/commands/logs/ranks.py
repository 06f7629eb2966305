"""tcdebug logs ranks"""

from __future__ import annotations

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, write
from tcdebug.display.ranks import show_ranks
from tcdebug.display.text import counted
from tcdebug.reading.ranks import compare_ranks, ranks_of
from tcdebug.reading.run_dir import NoRun
from tcdebug.reading.torch_files import found_or_imported


def run(*, run_name: str | None, as_json: bool) -> int:
    """Compare the ranks of a run; 1 if they differ, 2 if there is no run or only one rank."""
    try:
        found = found_or_imported(run_name)
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    records = found.events()
    ranks = ranks_of(records)
    if len(ranks) < 2:
        error(
            "TCD002",
            f"{found.path.name} has events of {counted(len(ranks), 'rank')}",
            "set TORCH_TRACE=trace for all ranks, then tcdebug logs ranks trace",
        )
        return USAGE
    comparison = compare_ranks(found, records)
    if as_json:
        write(msgspec.json.encode(comparison).decode() + "\n")
    else:
        show_ranks(comparison, found.path)
    return int(comparison.compiles is not None or comparison.collectives is not None)
