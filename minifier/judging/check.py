"""The user's own command as the judge of a script: its exit status as `git bisect run` has it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.cases.decisions import read_decisions
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.minifier.processes.subprocess_hook import unfollowed

PLACE = "{}"
"""What stands for the path of the script in a command; without it the path comes last."""
CANDIDATE = "TCDEBUG_CANDIDATE"
"""The variable of the environment that holds the path, too."""
SKIP = 125
NOT_RUN = (126, 127)
"""What a shell says when it cannot run a command."""


def run_check(
    command: str,
    script: Path,
    events: Path,
    off: Sequence[str] = (),
    seconds: float | None = None,
    output: Path | None = None,
) -> Outcome:
    """What a command says of a script, run with `off` switched off.

    0 is ok, 125 and a command that cannot be run are invalid, all else is bad. Events of the
    compiles go to the folder `events`, and decisions are read from there.
    """
    path = shlex.quote(str(script))
    line = command.replace(PLACE, path) if PLACE in command else f"{command} {path}"
    environment = {
        **{k: v for k, v in unfollowed().items() if k != "TCDEBUG_SESSION"},
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
    return replace(
        outcome, decisions=most_decisions(fresh), seconds=ended.seconds
    )


def most_decisions(files: Sequence[Path]) -> tuple[Decision, ...]:
    """Those of one process, for the same graphs may be compiled in several."""
    found = [tuple(read_decisions(file)) for file in files]
    return max(found, key=len, default=())


def outcome_of(status: int | None) -> Outcome:
    """The outcome of a script by the exit status of a check of it."""
    if status is None:
        return Outcome(Kind.INVALID, "check", message="it is not known how the check ended")
    if status == 0:
        return Outcome(Kind.OK, "check")
    if status == SKIP:
        return Outcome(Kind.INVALID, "check", message="the check skips it")
    if status in NOT_RUN:
        return Outcome(Kind.INVALID, "check", message=f"the check could not be run: {status}")
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Outcome(Kind.BAD, "check", "check | bad", f"the check ended with {how}")
