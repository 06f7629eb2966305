"""Runs the user's command to judge a script. Its exit statuses are those of `git bisect run`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.processes.subprocess_hook import environment_without_hook
from tcdebug.minifier.trace.decisions import read_decisions

PLACE = "{}"
"""The placeholder for the script's path in a command. Without it the path comes last."""
CANDIDATE = "TCDEBUG_CANDIDATE"
"""The environment variable that holds the path too."""
SKIP = 125
NOT_RUN = (126, 127)
"""The exit statuses of a shell that cannot run a command."""


def run_check(
    command: str,
    script: Path,
    events: Path,
    off: Sequence[str] = (),
    seconds: float | None = None,
    output: Path | None = None,
) -> Outcome:
    """Run a command on a script, with the toggles `off`, and return its verdict.

    Status 0 is ok. Status 125 and a command that cannot be run are invalid. Anything else is bad.
    The compiles write their events to the folder `events`, from which decisions are read.
    """
    path = shlex.quote(str(script))
    line = command.replace(PLACE, path) if PLACE in command else f"{command} {path}"
    environment = {
        **{k: v for k, v in environment_without_hook().items() if k != "TCDEBUG_SESSION"},
        CANDIDATE: str(script),
        "TCDEBUG_RUN_DIR": str(events),
        "TCDEBUG_ARTIFACTS": "0",
    }
    if off:
        environment["TCDEBUG_OFF"] = ",".join(off)
    known = set(events.glob("events*.jsonl"))
    limits = None if seconds is None else Limits(seconds, None)
    shell = ["/bin/sh", "-c", line]
    ended = finished(spawn(shell, environment, output=output, limits=limits))
    if ended.timed_out:
        message = f"no end after {seconds:.0f} s"
        return Outcome(Kind.HANG, "check", "check | hang", message)
    outcome = outcome_of(ended.returncode)
    fresh = sorted(set(events.glob("events*.jsonl")) - known)
    return replace(outcome, decisions=most_decisions(fresh), seconds=ended.seconds)


def most_decisions(files: Sequence[Path]) -> tuple[Decision, ...]:
    """Return the decisions of the file with the most. Processes may compile the same graphs."""
    found = [tuple(read_decisions(file)) for file in files]
    return max(found, key=len, default=())


def outcome_of(status: int | None) -> Outcome:
    """Return the outcome for an exit status of a check."""
    if status is None:
        return Outcome(Kind.INVALID, "check", message="the check's exit status is unknown")
    if status == 0:
        return Outcome(Kind.OK, "check")
    if status == SKIP:
        return Outcome(Kind.INVALID, "check", message="the check skips it")
    if status in NOT_RUN:
        return Outcome(Kind.INVALID, "check", message=f"the check could not be run: {status}")
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Outcome(Kind.BAD, "check", "check | bad", f"the check ended with {how}")
