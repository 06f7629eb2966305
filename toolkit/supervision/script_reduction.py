"""Makes the script of a report small, in a session of its own."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from tcdebug.compiler.events.run_folder import BASE
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import ReproVerify
from tcdebug.display.text import short_path
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.investigation.minimised_script import (
    LAST_RUNS,
    MINIMISE,
    NOT_MINIMISED,
    RESULT,
    SMALLER,
    TASK,
    MinimisedScript,
    minimising_task,
    reason_not_minimised,
    with_minimised_script,
)
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.processes.job import REPORT, SessionError
from tcdebug.reading.run_dir import find
from tcdebug.supervision.supervisor import Supervisor

STARTERS = ("commands", "calls")
"""Folders of scripts that start a program and are small as they are."""
TO_MINIMISE = 0.8
"""The largest fraction of the seconds left that minimising may take."""
AT_LEAST = 0.5
"""The fraction that it takes in any case."""


def with_small_script(supervisor: Supervisor, report: Report) -> Report:
    """Return the report of a script that fails as a whole with a small version of the script.

    The report is written to the run folder. Others are returned as they are.
    """
    job, began = supervisor.job, time.monotonic()
    run_seconds = longest_run_of_the_repro(supervisor)
    seconds = min(job.script_seconds, time_to_minimise(supervisor.seconds_left, run_seconds))
    if reason := reason_not_minimised(job, report, seconds, program=_starts_a_program(job.script)):
        return _as_it_is(supervisor, report, reason)
    task = minimising_task(report, seconds, run_seconds)
    if task is not None and job.minimise:
        supervisor.progress.say(f"minimising the script, for at most {task.seconds:.0f} s")
        (supervisor.folder / TASK).write_bytes(msgspec.json.encode(task))
        try:
            supervisor.session(MINIMISE)
            result = msgspec.json.decode(
                (supervisor.folder / RESULT).read_bytes(), type=MinimisedScript
            )
        except (SessionError, OSError) as problem:
            supervisor.log.emit(Fallback(NOT_MINIMISED, str(problem)[-2000:]))
            result = _unfinished("the session that minimises it ended early", supervisor.folder)
        except KeyboardInterrupt:
            result = _unfinished("interrupted", supervisor.folder)
        report = with_minimised_script(
            job, report, task, result, supervisor.log, lambda: supervisor.seconds_left
        )
        seconds = round(report.seconds + time.monotonic() - began, 3)
        cpu_seconds = round(report.cpu_seconds + result.cpu_seconds, 3)
        report = msgspec.structs.replace(report, seconds=seconds, cpu_seconds=cpu_seconds)
        (supervisor.folder / REPORT).write_bytes(msgspec.json.encode(report))
    return report


def _unfinished(reason: str, folder: Path) -> MinimisedScript:
    """Return the result of a search that did not end: the reason, and its smallest version."""
    path = folder / SMALLER
    if path.exists():
        lines, where = ScriptText(path.read_text()).size, short_path(str(path))
        reason += (
            f". A version with {lines} lines failed in a fork, and was not checked further: {where}"
        )
    return MinimisedScript("", reason=reason)


def longest_run_of_the_repro(supervisor: Supervisor) -> float:
    """Return how long the runs of the script's repro took at most, in seconds."""
    events = find(str(supervisor.folder)).events()
    runs = [r["data"]["seconds"] for r in events if r["event"] == ReproVerify.kind]
    return float(max(runs, default=0.0))


def time_to_minimise(left: float, run_seconds: float) -> float:
    """Return how many of the seconds left minimising may take, so that the result can be run."""
    return max(AT_LEAST * left, min(TO_MINIMISE * left, left - LAST_RUNS * run_seconds))


def _as_it_is(supervisor: Supervisor, report: Report, reason: str) -> Report:
    """Return the report with a note that says why the script is not minimised."""
    supervisor.log.emit(Fallback(NOT_MINIMISED, reason))
    report = msgspec.structs.replace(report, notes=[*report.notes, f"{NOT_MINIMISED}: {reason}"])
    (supervisor.folder / REPORT).write_bytes(msgspec.json.encode(report))
    return report


def _starts_a_program(script: str) -> bool:
    """Return whether tcdebug wrote this script to start a module, code, a command or a call."""
    folder = Path(script).resolve().parent
    return folder.name in STARTERS and folder.parent == Path(BASE).resolve()
