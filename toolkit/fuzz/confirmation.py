"""Judges a finding again in a fresh process, so that only what fails there counts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec

from tcdebug.fuzz.findings import Finding, State
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.verdict import Status
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.reading.run_dir import Tail

START = 120.0
"""Seconds for a fresh process to import torch and warm up."""
ONLY_ORACLE = "the fuzzer's oracle fails in a fresh process"
PASSES = "the fuzzer's oracle passes in a fresh process"
UNKNOWN = "the fuzzer's oracle gave no answer in a fresh process"


def judged_again(finding: Finding, job: FuzzJob, folder: Path) -> Finding:
    """Return the finding after a fresh process has judged its program with all oracles.

    If the program passes there, the state is NOT_REPRODUCED. Without an answer, the state is kept.
    The note says what happened. Writes to `folder`, which it removes.
    """
    status = _status(finding, job, folder)
    if status is None:
        return _noted(finding, UNKNOWN)
    if status is Status.FAILED:
        return _noted(finding, ONLY_ORACLE)
    return msgspec.structs.replace(_noted(finding, PASSES), state=State.NOT_REPRODUCED)


def _status(finding: Finding, job: FuzzJob, folder: Path) -> Status | None:
    """Return the outcome of the program in a fresh process; None without an answer."""
    folder.mkdir()
    again = msgspec.structs.replace(job, run_dir=str(folder), again=(finding.slug,), database="")
    path = folder / "job.json"
    path.write_bytes(msgspec.json.encode(again))
    child = spawn(
        [sys.executable, "-m", "tcdebug.fuzz.worker", str(path)], os.environ,
        output=folder / "output.log", limits=Limits(START + job.limits.seconds, None),
    )  # fmt: skip
    finished(child)
    records = [record for record in Tail(folder).new() if record["event"] == "fuzz.again"]
    shutil.rmtree(folder)
    return Status(records[0]["data"]["status"]) if records else None


def _noted(finding: Finding, text: str) -> Finding:
    return msgspec.structs.replace(finding, note="; ".join(filter(None, (finding.note, text))))
