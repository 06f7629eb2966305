"""Confirms a finding: its script must fail in a fresh process, which has only torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from tcdebug.fuzz.findings import PROGRAM, Finding
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn

SECONDS = 120.0
"""The time limit of a script, in seconds."""
FAILS = "the script fails in a fresh process"
"""The note of a finding that its script confirms."""
NO_TIME = "no time was left for the script"
DIFFERS = 1
"""The exit status of a script that sees a difference."""


def confirmed(
    finding: Finding, folder: Path, setup: str = "", left: float | None = None
) -> Finding:
    """Return the finding with a note that says whether its script fails in a fresh process.

    `setup` is a file that the script runs first. The output of the script is `log.txt`. `left` are
    the seconds that there are; None without a limit.
    """
    path = folder / PROGRAM
    if setup:
        path.write_text(f"import runpy\n\nrunpy.run_path({setup!r})\n\n{path.read_text()}")
    command = [sys.executable, path.name]
    log = folder / "log.txt"
    seconds = SECONDS if left is None else max(0.0, min(SECONDS, left))
    child = spawn(command, os.environ, folder=folder, output=log, limits=Limits(seconds, None))
    ended = finished(child)
    if ended.timed_out and seconds < SECONDS:
        note = NO_TIME
    elif ended.timed_out:
        note = "the script does not end"
    elif ended.returncode == DIFFERS:
        note = FAILS
    elif ended.returncode == 0:
        note = "the script passes"
    else:
        note = f"the script ends with {ended.returncode}"
    return msgspec.structs.replace(finding, note=note)
