"""Asks compute-sanitizer, a program of the CUDA toolkit, which kernel of a repro is at fault."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.repros.verify import run_under

PROGRAM = "compute-sanitizer"
ADDRESSES = ("an illegal memory access was encountered", "misaligned address")
"""The ends of signatures of kernels that read or write wrong addresses."""
LATER_CALL = ", in call "
"""Part of the message of a failure that a later call showed."""
MOST_SECONDS = 120.0

ACCESS = re.compile(
    r"^=+ (?P<what>Invalid .+)\n=+ +at (?P<kernel>\w+)\S*(?: in (?P<place>\S+:\d+))?", re.MULTILINE
)
RACE = re.compile(
    r"^=+ \w+: (?P<what>Race reported between \w+ access) at (?P<kernel>\w+)\S*"
    r"(?: in (?P<place>\S+:\d+))?",
    re.MULTILINE,
)


def kernel_at_fault(repro: Path, failure: Outcome, seconds: float) -> str:
    """Run a repro under compute-sanitizer and return a note on the first fault that it reports.

    The note is empty if the failure is of another kind, compute-sanitizer is not on the PATH, or it
    reports nothing. Races are found in shared memory only.
    """
    program = shutil.which(PROGRAM)
    if program is None or seconds <= 0:
        return ""
    if failure.signature.endswith(ADDRESSES):
        tool, report = "memcheck", ACCESS
    elif LATER_CALL in failure.message:
        tool, report = "racecheck", RACE
    else:
        return ""
    command = [program, "--tool", tool, "--target-processes", "all", "--print-limit", "1"]
    ran = run_under(command, repro, min(seconds, MOST_SECONDS))
    return _note(tool, report.search(ran.output))


def _note(tool: str, found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    place = f" ({found['place']})" if found["place"] else ""
    return f"{PROGRAM} --tool {tool}: {found['what']} in the kernel {found['kernel']}{place}"
