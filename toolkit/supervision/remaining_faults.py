"""Runs the script without the culprits of its graphs, and searches for what still makes it fail."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.report import Report, culprit_units, raises_instead
from tcdebug.minifier.investigation.script_runs import (
    Remaining,
    outcome_without,
    ran,
    remaining_failure,
)
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import PARTIAL, REPORT
from tcdebug.supervision.graph_behind_script import notes_on_suspects, passes_with
from tcdebug.supervision.script_search import ScriptSearch
from tcdebug.supervision.supervisor import Supervisor, begin

MOST_SEARCHES = 3
"""Searches for further faults, each without the culprits of those before it."""


class ScriptBeside:
    """Runs the script without the culprits while the search writes and verifies their repros.

    Only a pass counts, because two runs of a script at the same time may disturb each other.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._units: list[str] = []
        self._outcome: Outcome | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._supervisor.meanwhile = self._look
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._join()

    def passed(self, units: Sequence[str]) -> bool:
        """Return whether the script was seen to pass without these units. Wait until it ends."""
        if list(units) != self._units:
            self._stop.set()
        self._join()
        outcome, self._outcome = self._outcome, None
        if outcome is None or outcome.kind is not Kind.OK or list(units) != self._units:
            return False
        self._supervisor.log.emit(ran(1, tuple(units), outcome))
        return True

    def _look(self) -> None:
        """Start the run once the culprits are known and the first repro is written."""
        supervisor = self._supervisor
        if self._thread is not None or not (supervisor.folder / "repro.py").exists():
            return
        report = supervisor.read_report(PARTIAL)
        if report is None or not _names_units(supervisor, report):
            return
        self._units = culprit_units(report)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # it is run again, and fails again
            self._outcome = outcome_without(
                self._supervisor.job, self._supervisor.seconds_left, self._units,
                self._supervisor.sessions, self._stop.is_set,
            )  # fmt: skip

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()


def with_remaining_faults(supervisor: Supervisor, report: Report, beside: ScriptBeside) -> Report:
    """Return a confirmed report of a graph, with notes on how its script ends without the culprits.

    If the script still fails, and passes in eager, that failure is searched for in a run of its
    own, and its faults are added if they are confirmed. The exit status is that of `report`. The
    result is written to the run folder.
    """
    extended = _extended(supervisor, report, beside)
    if extended is not report:
        extended = supervisor.costed(extended)
        (supervisor.folder / REPORT).write_bytes(msgspec.json.encode(extended))
    return extended


def _names_units(supervisor: Supervisor, report: Report) -> bool:
    """Return whether a report names units of a graph without which the script can be run."""
    job = supervisor.job
    return (
        report.graph is not None
        and bool(culprit_units(report))
        and job.bisect
        and job.wanted == Criteria()
    )


def _extended(supervisor: Supervisor, report: Report, beside: ScriptBeside) -> Report:
    for _ in range(MOST_SEARCHES):
        units = culprit_units(report)
        if report.status != "confirmed" or not _names_units(supervisor, report):
            return report
        off = ", ".join(units)
        if passes_with(off) in report.notes or _raises_instead(report):
            return report
        supervisor.progress.say(f"running the script with {off} off")
        if beside.passed(units):
            return _noted(report, passes_with(off), *notes_on_suspects(supervisor, report))
        try:
            left = remaining_failure(
                supervisor.job, supervisor.log, supervisor.seconds_left, units,
                supervisor.sessions,
            )  # fmt: skip
        except BudgetUsed:
            why = f"the budget ran out before the script was run with {off} off"
            return _noted(report, why)
        if not left.fails_compiled_only:
            notes = notes_on_suspects(supervisor, report) if left.outcome.kind is Kind.OK else []
            return _noted(report, _ending(left, off), *notes)
        supervisor.progress.say("it still fails: searching for another fault")
        report, found = _with_next(supervisor, report, units, left, off)
        if not found:
            return report
    return report


def _raises_instead(report: Report) -> bool:
    """Return whether the script says nothing without the culprits: a call in their place raises."""
    beginning = raises_instead(culprit_units(report))
    return any(note.startswith(beginning) for note in report.notes)


def _ending(left: Remaining, off: str) -> str:
    if left.outcome.kind is Kind.OK:
        return passes_with(off)
    return f"with {off} off, the script fails as it does in eager: {_message(left)}"


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
        f"with {off} off, the script still fails, although it passes in eager: {_message(left)}",
        f"tcdebug {supervisor.command} {options} was run for that failure, with the status "
        f"{found.status}: tcdebug logs {inner.folder}",
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
