"""tcdebug logs ls"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.compiler.events.run_folder import BASE
from tcdebug.display.console import error, write
from tcdebug.display.tables import show_table
from tcdebug.minifier.processes.job import REPORT
from tcdebug.reading.run_dir import Run, read, runs


def run(*, as_json: bool) -> int:
    """List the runs; 2 if there are none."""
    known = [_described(r) for r in runs()]
    if not known:
        error("TCD001", f"no run in {BASE}", "make one with tcdebug run script.py")
        return USAGE
    if as_json:
        write(msgspec.json.encode(known).decode() + "\n")
        return 0
    rows = [[r["run"], r["started"], r["result"], r["command"]] for r in known]
    show_table(("run", "started", "result", "command"), rows)
    return 0


def _described(found: Run) -> dict[str, Any]:
    started = datetime.fromtimestamp(found.info.started).astimezone()
    return {
        "run": found.path.name,
        "started": started.isoformat(sep=" ", timespec="seconds"),
        "command": " ".join(found.info.argv[1:]) or found.info.command,
        "result": result(found),
    }


def result(found: Run) -> str:
    """How a run ended: what a search reports, else the exit status; "no end" without either."""
    report = found.path / REPORT
    if report.exists():
        return str(msgspec.json.decode(report.read_bytes()).get("status"))
    own = found.path / "events.jsonl"
    if not own.exists():  # of a program without a command, which has no last event
        return "-"
    last = None
    for record in read(own):
        last = record
    if last is not None and last["event"] == "run.end":
        return f"exit {last['data']['exit_status']}"
    return "no end"
