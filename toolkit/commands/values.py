"""tcdebug values"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tcdebug.cli.termination import INTERRUPTED
from tcdebug.commands.run import without_graphs
from tcdebug.display.console import error, write
from tcdebug.display.findings.values import show_values
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.processes.job import (
    FAULT,
    Job,
    UnknownBackend,
    check_backend,
    start_in_foreground,
)
from tcdebug.minifier.values.findings import REPORT, ValuesReport
from tcdebug.supervision.eager_failures import print_script_problem
from tcdebug.supervision.foreground import ending, refused, status_of
from tcdebug.supervision.supervisor import begin

SCRIPT_LOG = "script.log"
FOUND, UNEXPLAINED, INTERNAL, NOTHING = 0, 1, 3, 4


def run(
    *, script: str, args: Sequence[str], backend: str | None, off: Sequence[str], oracle: str,
    twice: bool, calls: int, as_json: bool,
) -> int:  # fmt: skip
    """Run the script with its graphs observed, and show what was found. Return the exit status."""
    if print_script_problem(script):
        return UNEXPLAINED
    wanted = Criteria(oracle)
    job = Job("values", script, list(args), "", backend, wanted=wanted, twice=twice, calls=calls)
    supervisor = begin("values", job, quiet=True, fresh=True)
    folder = supervisor.folder
    environment = {"TCDEBUG_RUN_DIR": str(folder)}
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    log = folder / SCRIPT_LOG
    status = status_of(start_in_foreground(supervisor.job, environment, log), supervisor.job)
    try:
        check_backend(supervisor.job)
    except UnknownBackend as problem:
        return refused(supervisor, problem)
    path = folder / REPORT
    report = msgspec.json.decode(path.read_bytes(), type=ValuesReport) if path.exists() else None
    exit_status = _exit_status(status, report)
    supervisor.finish(exit_status, healthy=exit_status == NOTHING)
    if report is not None:
        if as_json:
            write(msgspec.json.encode(report).decode() + "\n")
        elif report.captured or report.graphs or report.found or report.notes:
            show_values(report)
        elif status == 0:
            error("TCD012", f"{script} compiles no graph", without_graphs(script))
    if status and (report is None or report.found is None):
        error("TCD013", ending(status, log), f"its output is in {log}")
    return exit_status


def _exit_status(status: int | None, report: ValuesReport | None) -> int:
    if status is None:
        return INTERRUPTED
    if status == FAULT:
        return INTERNAL
    if report is not None and report.found is not None:
        return FOUND
    if status or report is None or report.unexplained:
        return UNEXPLAINED
    return NOTHING
