"""tcdebug logs ls"""

from __future__ import annotations

from datetime import datetime

import msgspec

from tcdebug.cli.options import USAGE
from tcdebug.compiler.events.run_folder import BASE, is_alive, is_healthy
from tcdebug.display.console import error, write
from tcdebug.display.tables import show_table
from tcdebug.minifier.investigation.report import STATUS_EXIT
from tcdebug.minifier.processes.job import REPORT
from tcdebug.output.structures import ListedRun
from tcdebug.reading.run_dir import Run, read, runs

SEARCHES = ("bisect", "minify")
SEARCH_STATUS = {status: name for name, status in STATUS_EXIT.items() if status}
"""Status of a search by exit status. One that ends with 0 has a report."""


def run(*, as_json: bool) -> int:
    """List the runs; 2 if there are none."""
    known = [_described(r) for r in runs()]
    if not known:
        error("TCD001", f"no run in {BASE}", "make one with tcdebug run script.py")
        return USAGE
    if as_json:
        write(msgspec.json.encode(known).decode() + "\n")
        return 0
    rows = [[r.run, r.started, r.result, r.command] for r in known]
    show_table(("run", "started", "result", "command"), rows)
    return 0


def _described(found: Run) -> ListedRun:
    started = datetime.fromtimestamp(found.info.started).astimezone()
    return ListedRun(
        run=found.path.name,
        started=started.isoformat(sep=" ", timespec="seconds"),
        command=" ".join(" ".join(found.info.argv[1:]).split()) or found.info.command,
        result=result(found),
    )


def result(found: Run) -> str:
    """Return how a run ended: the status of a search, or the exit status and what it left.

    "running" or "no end" if it has not ended.
    """
    report = found.path / REPORT
    if report.exists():
        return str(msgspec.json.decode(report.read_bytes()).get("status"))
    own = found.path / "events.jsonl"
    if not own.exists():  # of a program without a command, which has no last event
        return "-" if is_healthy(found.path) else "found a failure"
    last = None
    for record in read(own):
        last = record
    if last is None or last["event"] != "run.end":
        return "running" if is_alive(found.info.pid) else "no end"
    status = last["data"]["exit_status"]
    if found.info.command in SEARCHES and (name := SEARCH_STATUS.get(status)):
        return name
    repros = sum(1 for _ in found.path.glob("graphs/*/repro.py"))
    left = f", {repros} repro{'s' * (repros != 1)}" if repros else ""
    return f"exit {status}{left}"
