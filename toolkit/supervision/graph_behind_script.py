"""Searches the graphs of a script that fails as a whole again, with another oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tcdebug.minifier.cases.criteria import VALIDATION
from tcdebug.minifier.investigation.report import (
    Report,
    culprit_units,
    suspected_units,
    suspicion,
)
from tcdebug.minifier.investigation.script_failure import ScriptFailure
from tcdebug.minifier.investigation.whole_script import passes_without
from tcdebug.minifier.processes.job import PARTIAL, REPORT
from tcdebug.supervision.recorded_graphs import order_excused, slow_graph, slowest_graph
from tcdebug.supervision.supervisor import Supervisor

SLOW_GRAPH = 8.0
"""A graph that takes this many CPU-seconds may be what is wrong with a script."""
MUCH_FASTER = 8.0
"""Without the culprit, such a graph must compile this many times faster, or faster than IMPORTS.

A compile that takes longer counts as slow and is interrupted soon after. So a candidate costs a
quarter of the seconds of the first compile, which may be a minute.
"""
IMPORTS = 2.5
"""CPU-seconds that the first compile of a process may need to import what it uses."""


def passes_with(off: str) -> str:
    """Return the note on a script that was seen to pass without its culprits."""
    return f"the script passes with {off} off"


def slow_compile(supervisor: Supervisor, failed: ScriptFailure) -> tuple[Report | None, list[str]]:
    """Return the report of a slow graph, and notes on it; None and no notes if no graph is slow.

    It is confirmed if the script passes without the unit that makes the graph slow.
    """
    seconds = slowest_graph(supervisor.folder)
    if seconds < SLOW_GRAPH:
        return None, []
    supervisor.progress.say(f"a graph takes {seconds:.0f} CPU-seconds: searching for the cause")
    longest = max(seconds / MUCH_FASTER, IMPORTS)
    wanted = msgspec.structs.replace(
        supervisor.job.wanted, oracle="compile-time", longer_than=longest
    )
    (supervisor.folder / PARTIAL).unlink(missing_ok=True)
    report = _searched_again(supervisor, wanted=wanted, minimise=False)
    report = report or supervisor.read_report(PARTIAL)
    slow = slow_graph(supervisor.folder) or f"a graph takes {seconds:.0f} CPU-seconds"
    if report is None or report.status != "confirmed":
        return None, [slow, *(suspicion(report) if report else [])]
    units = [culprit.unit for culprit in report.culprits]
    off = ", ".join(units)
    supervisor.progress.say(f"running the script with {off} off")
    found = msgspec.structs.replace(report, layer=failed.finding.layer, ladder=failed.ladder)
    if not _passes_without(supervisor, units):
        faster = f"it compiles faster with {off} off; the script was not seen to pass then"
        faults = [msgspec.structs.replace(f, confirmed=False) for f in report.faults]
        notes = [f"the script fails: {failed.failure.message}", slow, faster]
        changes = {"status": "budget", "confirmed": False, "faults": faults}
        found = msgspec.structs.replace(found, **changes, notes=[*notes, *report.notes])
        return found, [slow, faster]
    notes = [
        f"the script fails: {failed.failure.message}",
        passes_with(off),
        "the graph was not minimised: use tcdebug minify --oracle compile-time",
    ]
    return msgspec.structs.replace(found, notes=[*notes, *report.notes]), []


def behind_script(supervisor: Supervisor, failed: ScriptFailure, *, divided: bool) -> Report | None:
    """Return the report of a graph that passed at first and fails as the script needs it; or None.

    `divided` means that candidates were forked from a process that had not initialised CUDA.
    """
    report = other_order(supervisor, failed) if order_excused(supervisor.folder) else None
    if report is None and divided:
        report = failing_in_replays(supervisor, failed)
    return report


def lost_validation(
    supervisor: Supervisor, failed: ScriptFailure
) -> tuple[Report | None, list[str]]:
    """Return the report of a graph that accepts what eager rejects, if it is the culprit.

    It is if the script passes without it. Otherwise return None, and a note on such a graph.
    """
    supervisor.progress.say("a graph raises in eager: checking whether it raises when compiled too")
    wanted = msgspec.structs.replace(supervisor.job.wanted, oracle=VALIDATION)
    report = _searched_again(supervisor, wanted=wanted)
    if report is None or report.failure is None:
        return None, []
    accepts = f"graph {report.graph} accepts inputs: {report.failure.message[:300]}"
    units = culprit_units(report)
    if report.status != "confirmed" or not units:
        return None, [accepts]
    off = ", ".join(units)
    supervisor.progress.say(f"running the script with {off} off")
    if not _passes_without(supervisor, units):
        return None, [accepts, f"the script was not seen to pass with {off} off"]
    fails = f"the script fails: {failed.failure.message}"
    notes = [fails, passes_with(off), *notes_on_suspects(supervisor, report), *report.notes]
    return msgspec.structs.replace(
        report, layer=failed.finding.layer, ladder=failed.ladder, notes=notes
    ), []


def other_order(supervisor: Supervisor, failed: ScriptFailure) -> Report | None:
    """Return the report of a graph that counted as passed, since torch promises no order; or None.

    The script may still need the order of eager. It does if it passes without the culprit.
    """
    supervisor.progress.say("searching the graphs whose equal elements have another order")
    report = _confirmed_again(supervisor, failed, order_counts=True)
    units = culprit_units(report) if report else []
    if report is None or not units or not _passes_without(supervisor, units):
        return None
    notes = [f"the script fails: {failed.failure.message}", *report.notes]
    return msgspec.structs.replace(report, notes=notes)


def failing_in_replays(supervisor: Supervisor, failed: ScriptFailure) -> Report | None:
    """Return the report of a graph that fails with all that the script sets up before; or None.

    Candidates that were forked before the script initialised CUDA lacked what it sets up later.
    """
    supervisor.progress.say("searching its graphs again, with the script run for each candidate")
    return _confirmed_again(supervisor, failed, replays=True)


def notes_on_suspects(supervisor: Supervisor, report: Report) -> list[str]:
    """Return a note if the script passes without the units that a report only suspects.

    The graph fails without them too, in a different way. The script may not mind that.
    """
    units = suspected_units(report)
    if not units or not _passes_without(supervisor, units):
        return []
    return [passes_with(", ".join(units))]


def _confirmed_again(
    supervisor: Supervisor, failed: ScriptFailure, **changes: Any
) -> Report | None:
    """Search the graphs with changes of the job. Return the report if it is confirmed."""
    (supervisor.folder / PARTIAL).unlink(missing_ok=True)
    report = _searched_again(supervisor, **changes)
    if report is None or report.status != "confirmed":
        return None
    return msgspec.structs.replace(report, layer=failed.finding.layer, ladder=failed.ladder)


def _searched_again(supervisor: Supervisor, **changes: Any) -> Report | None:
    """Search the graphs with changes of the job. Return the report, whose file is removed."""
    supervisor.session("search", **changes)
    report = supervisor.read_report(REPORT)
    (supervisor.folder / REPORT).unlink(missing_ok=True)
    return report


def _passes_without(supervisor: Supervisor, units: Sequence[str]) -> bool:
    """Return whether the script also passes with these units off."""
    left = supervisor.seconds_left
    return passes_without(supervisor.job, supervisor.log, left, units, supervisor.sessions)
