"""The user's own command as the judge of a script: its exit status as `git bisect run` has it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.cases.decisions import read_decisions
from tcdebug.minifier.cases.outcome import Kind, Outcome
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
    output: IO[bytes] | None = None,
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
    started = time.monotonic()
    own_group = seconds is not None
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=own_group,
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        message = f"no end after {seconds:.0f} s"
        return Outcome(Kind.HANG, "check", "check | hang", message)
    finally:
        if own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    outcome = outcome_of(status)
    fresh = sorted(set(events.glob("events*.jsonl")) - known)
    return replace(
        outcome, decisions=most_decisions(fresh), seconds=time.monotonic() - started
    )


def most_decisions(files: Sequence[Path]) -> tuple[Decision, ...]:
    """Those of one process, for the same graphs may be compiled in several."""
    found = [tuple(read_decisions(file)) for file in files]
    return max(found, key=len, default=())


def outcome_of(status: int) -> Outcome:
    """The outcome of a script by the exit status of a check of it."""
    if status == 0:
        return Outcome(Kind.OK, "check")
    if status == SKIP:
        return Outcome(Kind.INVALID, "check", message="the check skips it")
    if status in NOT_RUN:
        return Outcome(Kind.INVALID, "check", message=f"the check could not be run: {status}")
    how = f"signal {-status}" if status < 0 else f"exit status {status}"
    return Outcome(Kind.BAD, "check", "check | bad", f"the check ended with {how}")
