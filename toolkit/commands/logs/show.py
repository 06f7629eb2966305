"""tcdebug logs"""

from __future__ import annotations

import time
from collections.abc import Callable

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error, results
from tcdebug.display.diff import show_diff
from tcdebug.display.remarks import show_remarks
from tcdebug.display.timeline import event_line, show_timeline, write_json_lines
from tcdebug.reading.filters import Selection
from tcdebug.reading.graphs import changes_of
from tcdebug.reading.run_dir import NoRun, Record, Run, Tail, find


def run(
    *,
    run_name: str | None,
    stage: str | None,
    graph: str | None,
    unit: str | None,
    diff: str | None,
    remarks: bool,
    follow: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """Show a run; 2 if there is none, or no event matches."""
    try:
        found = find(run_name)
    except NoRun as problem:
        error("TCD001", str(problem))
        return USAGE

    chosen = Selection(stage or "", graph or "", unit or "")
    debug = everything or as_json or remarks or unit is not None

    def wanted(record: Record) -> bool:
        return (debug or record.get("level") != "debug") and chosen.fits(record)

    if follow:
        return _follow(found, wanted, as_json=as_json)
    records = [r for r in found.events() if wanted(r)]
    if diff is not None:
        return _diff(found, diff, graph)
    if remarks:
        return _remarks(found, records, as_json=as_json)
    if not records:
        error("TCD002", f"no event of {found.path.name} matches", "tcdebug logs --all")
        return USAGE
    if as_json:
        write_json_lines(records)
    else:
        show_timeline(found, records)
    return 0


def _remarks(found: Run, records: list[Record], *, as_json: bool) -> int:
    """Show what was fused, what was not, and the source lines of the kernels."""
    kept = [r for r in records if r["event"] == "remark"]
    if not kept:
        error(
            "TCD002",
            f"no remark in {found.path.name}",
            "only the embedded compiler writes them: tcdebug run --backend tcdebug script.py",
        )
        return USAGE
    if as_json:
        write_json_lines(kept)
    else:
        show_remarks(kept, [r for r in records if r["event"] == "kernel"])
    return 0


def _follow(found: Run, wanted: Callable[[Record], bool], *, as_json: bool) -> int:
    """Show events as they are written, until the end of the run. Ctrl-C ends the command."""
    tail, console = Tail(found.path), results()
    while True:
        for record in tail.new():
            if not wanted(record):
                continue
            if as_json:
                write_json_lines([record])
            else:
                console.print(event_line(record))
            if record.get("event") == "run.end":
                return 0
        time.sleep(0.2)


def _diff(found: Run, unit: str, graph: str | None) -> int:
    """Show the IR before and after each change by a pass or stage."""
    changes = changes_of(found, unit, graph)
    for change in changes:
        show_diff(change.title, change.before, change.after)
    if not changes:
        what = f"{unit} changed no graph in {found.path.name}"
        error("TCD003", what, "tcdebug logs shows which units changed a graph")
        return USAGE
    return 0
