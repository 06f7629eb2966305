"""Runs the script without the culprits of its graphs, and searches for what still makes it fail."""

from __future__ import annotations

import msgspec

from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.report import Report, culprit_units
from tcdebug.minifier.investigation.script_runs import Remaining, remaining_failure
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import REPORT
from tcdebug.supervision.graph_behind_script import passes_with
from tcdebug.supervision.script_search import ScriptSearch
from tcdebug.supervision.supervisor import Supervisor, begin

MOST_SEARCHES = 3
"""Searches for further faults, each without the culprits of those before it."""


def with_remaining_faults(supervisor: Supervisor, report: Report) -> Report:
    """Return a confirmed report of a graph, with notes on how its script ends without the culprits.

    If the script still fails, and passes in eager, that failure is searched for in a run of its
    own, and its faults are added if they are confirmed. The exit status is that of `report`. The
    result is written to the run folder.
    """
    extended = _extended(supervisor, report)
    if extended is not report:
        extended = supervisor.costed(extended)
        (supervisor.folder / REPORT).write_bytes(msgspec.json.encode(extended))
    return extended


def _extended(supervisor: Supervisor, report: Report) -> Report:
    for _ in range(MOST_SEARCHES):
        units = culprit_units(report)
        if report.graph is None or report.status != "confirmed" or not units:
            return report
        if not supervisor.job.bisect or supervisor.job.wanted != Criteria():
            return report
        off = ", ".join(units)
        if passes_with(off) in report.notes:
            return report
        supervisor.progress.say(f"running the script with {off} off")
        try:
            left = remaining_failure(
                supervisor.job, supervisor.log, supervisor.seconds_left, units,
                supervisor.sessions,
            )  # fmt: skip
        except BudgetUsed:
            why = f"the budget ran out before the script was run with {off} off"
            return _noted(report, why)
        if not left.fails_compiled_only:
            return _noted(report, _ending(left, off))
        supervisor.progress.say("it still fails: searching for another fault")
        report, found = _with_next(supervisor, report, units, left, off)
        if not found:
            return report
    return report


def _ending(left: Remaining, off: str) -> str:
    if left.outcome.kind is Kind.OK:
        return passes_with(off)
    return f"with {off} off the script fails as it does in eager: {_message(left)}"


def _message(left: Remaining) -> str:
    return " ".join(left.outcome.message.split())[:200]


def _noted(report: Report, *notes: str) -> Report:
    return msgspec.structs.replace(report, notes=[*report.notes, *notes])


def _with_next(
    supervisor: Supervisor, report: Report, units: list[str], left: Remaining, off: str
) -> tuple[Report, bool]:
    """Search the script without these units. Return the report with what was found, and whether."""
    job = msgspec.structs.replace(
        supervisor.job,
        toggles=[*supervisor.job.toggles, *units],
        seconds=supervisor.seconds_left,
    )
    inner = begin(
        supervisor.command,
        job,
        quiet=True,
        fresh=True,
        notes=False,
        progress=supervisor.progress,
        sessions=supervisor.sessions,
    )
    found = ScriptSearch(inner).report()
    inner.finish(found.exit_status, healthy=found.status == "no_failure")
    options = " ".join(f"--off {unit}" for unit in units)
    report = _noted(
        report,
        f"with {off} off the script still fails, and passes in eager: {_message(left)}",
        f"the other failure was searched for with tcdebug {supervisor.command} {options}: "
        f"{found.status}, tcdebug logs {inner.folder}",
    )
    added = found.status == "confirmed"
    report = msgspec.structs.replace(
        report,
        faults=[*report.faults, *(found.faults if added else [])],
        culprits=[*report.culprits, *(found.culprits if added else [])],
        notes=[*report.notes, *(found.notes if added else [])],
        reruns=report.reruns + found.reruns,
    )
    return report, added and found.graph is not None
