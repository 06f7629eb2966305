"""The follow-up of a finding: minify and bisect its program."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec

from tcdebug.fuzz.findings import PROGRAM, REPRO, Finding
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.judging.layout import ALIASING, STRIDES
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn

SECONDS = 240
"""Time limit of the minifier per finding, in seconds."""
REPORT = "report.json"


GRACE = 20.0
"""Seconds for the minifier to end after its limit."""
LEAST_SECONDS = 15.0
"""With less time, the minifier is not started."""


def minified(finding: Finding, folder: Path, setup: str = "", left: float | None = None) -> Finding:
    """Return the finding with its culprits and its own repro script, if time is left.

    If the minifier does not judge the failure, such as nondeterminism, `program.py` stays
    unchanged.
    """
    path = folder / PROGRAM
    if setup:
        path.write_text(f"import runpy\n\nrunpy.run_path({setup!r})\n\n{path.read_text()}")
    seconds = SECONDS if left is None else min(SECONDS, left - GRACE)
    if seconds < LEAST_SECONDS:
        return msgspec.structs.replace(finding, note=f"no time was left: tcdebug bisect {path}")
    command = [
        sys.executable, "-m", "tcdebug", "bisect", "--json", "--quiet", f"--seconds={seconds:.0f}",
        f"--timeout={seconds / 4:.0f}", f"--oracle={_oracle(finding)}", path.name,
    ]  # fmt: skip
    printed = folder / REPORT
    child = spawn(
        command, os.environ, folder=folder, output=printed, errors=folder / "log.txt",
        limits=Limits(SECONDS * 3 if left is None else seconds + GRACE, None),
    )  # fmt: skip
    ended = finished(child)
    try:
        report = msgspec.json.decode(printed.read_bytes(), type=Report)
    except msgspec.DecodeError:
        printed.unlink()
        how = "did not end" if ended.timed_out else f"ended with {ended.returncode}"
        return msgspec.structs.replace(finding, note=f"the minifier {how}")
    repro = None
    if report.repro is not None and Path(report.repro).exists():
        for file in Path(report.repro).parent.glob("repro*"):
            shutil.copy(file, folder)
        repro = REPRO
    shutil.rmtree(folder / ".tcdebug", ignore_errors=True)
    units = tuple(dict.fromkeys(c.unit for c in report.culprits))
    return msgspec.structs.replace(
        finding, culprits=units, repro=repro, note=f"bisect: {report.status}"
    )


def bisected(finding: Finding, folder: Path, left: float | None = None) -> Finding:
    """Return the confirmed finding of a Python program with its layer or unit as the culprit.

    The note of the finding keeps saying that its script fails.
    """
    made = minified(finding, folder, "", left)
    return msgspec.structs.replace(made, note=f"{finding.note}; {made.note}")


def _oracle(finding: Finding) -> str:
    """Return the oracle with which the minifier judges a finding."""
    of_layout = any(finding.signature.endswith(f"wrong {w}") for w in (STRIDES, ALIASING))
    return "layout" if of_layout else "default"
