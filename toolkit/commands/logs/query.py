"""tcdebug logs query"""

from __future__ import annotations

from tcdebug.cli.options import USAGE
from tcdebug.display.console import error
from tcdebug.display.timeline import show_timeline, write_json_lines
from tcdebug.reading.filters import BadLine, Selection, parse_line
from tcdebug.reading.run_dir import NoRun, find


def run(
    *,
    run_name: str | None,
    stage: str | None,
    graph: str | None,
    unit: str | None,
    event: str | None,
    line: str | None,
    as_json: bool,
) -> int:
    """Show the matching events; 2 if there are none."""
    try:
        found = find(run_name)
        place = parse_line(line) if line else None
    except NoRun as problem:
        error("TCD001", str(problem), "tcdebug logs ls")
        return USAGE
    except BadLine as problem:
        error("TCD006", str(problem))
        return USAGE
    wanted = Selection(stage or "", graph or "", unit or "", event or "", place)
    every = found.events()
    records = [r for r in every if wanted.fits(r)]
    if not records:
        kinds = ", ".join(sorted({str(r["event"]) for r in every}))
        error("TCD002", f"no event of {found.path.name} matches", f"its kinds are {kinds}")
        return USAGE
    if as_json:
        write_json_lines(records)
    else:
        show_timeline(found, records)
    return 0
