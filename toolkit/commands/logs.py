"""tcdebug logs"""

from __future__ import annotations

import time
from collections.abc import Callable

from tcdebug.cli_options import USAGE
from tcdebug.compiler.gate import belongs
from tcdebug.display.console import error, results
from tcdebug.display.diff import show_diff
from tcdebug.display.timeline import event_line, show_timeline, write_json_lines
from tcdebug.run_dir import NoRun, Record, Run, Tail, find


def run(
    *,
    run_name: str | None,
    stage: str | None,
    graph: str | None,
    unit: str | None,
    diff: str | None,
    follow: bool,
    everything: bool,
    as_json: bool,
) -> int:
    """Show a run; 2 when there is none, or nothing in it fits."""
    try:
        found = find(run_name)
    except NoRun as problem:
        error(str(problem))
        return USAGE

    def wanted(record: Record) -> bool:
        return (
            (everything or as_json or unit is not None or record.get("level") != "debug")
            and (stage is None or record.get("stage") == stage)
            and (graph is None or record.get("compile_id") == graph)
            and (unit is None or belongs(str(record.get("unit", "")), unit))
        )

    if follow:
        return _follow(found, wanted, as_json=as_json)
    records = [r for r in found.events() if wanted(r)]
    if diff is not None:
        return _diff(found, diff, graph)
    if not records:
        error(f"no event of {found.path.name} fits", "tcdebug logs --all")
        return USAGE
    if as_json:
        write_json_lines(records)
    else:
        show_timeline(found, records)
    return 0


def _follow(found: Run, wanted: Callable[[Record], bool], *, as_json: bool) -> int:
    """Events as they come, until Ctrl-C or the end of the run."""
    tail, console = Tail(found.path), results()
    try:
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
    except KeyboardInterrupt:
        return 130


def _diff(found: Run, unit: str, graph: str | None) -> int:
    """The IR before and after each time that a pass or stage changed it."""
    shown = 0
    last: dict[tuple[str, str], str] = {}
    for record in found.events():
        artifact = record.get("data", {}).get("artifact")
        if not artifact:
            continue
        key = (str(record.get("compile_id")), str(record.get("direction")))
        name = record.get("unit") or record.get("stage")
        fits = graph is None or record.get("compile_id") == graph
        if fits and record["event"] != "stage.start" and (name == unit or belongs(str(name), unit)):
            before = last.get(key)
            title = f"{name} on {key[0]} {key[1]}"
            show_diff(title, _text(found, before), _text(found, artifact))
            shown += 1
        last[key] = artifact
    if not shown:
        error(f"{unit} changed no graph in {found.path.name}", "tcdebug logs shows what did")
        return USAGE
    return 0


def _text(found: Run, artifact: str | None) -> str:
    return (found.path / artifact).read_text() if artifact else ""
