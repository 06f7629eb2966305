"""Judges a finding again in a fresh process, so that only what fails there counts.

Another process tells whether the backend is needed for the failure.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tcdebug.fuzz.findings import Finding, State
from tcdebug.fuzz.job import FuzzJob
from tcdebug.fuzz.verdict import Status
from tcdebug.minifier.processes.process import Child, Limits, finished
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.reading.run_dir import Tail

START = 120.0
"""Seconds for a fresh process to import torch and warm up."""
FRONT = "aot_eager"
"""The backend that compiles nothing: what fails with it too is no fault of another backend."""
FRONTS = ("eager", FRONT)
ONLY_ORACLE = "the fuzzer's oracle fails in a fresh process"
PASSES = "the fuzzer's oracle passes in a fresh process"
NO_TIME = "no time was left to judge it in a fresh process: tcdebug fuzz replay {slug}"
UNKNOWN = "the fuzzer's oracle gave no answer in a fresh process"
NOT_THE_BACKEND = f"the program fails in the same way with the backend {FRONT}"


def judged_again(
    finding: Finding, job: FuzzJob, folder: Path, left: float | None = None
) -> Finding:
    """Return the finding after fresh processes have judged its program with all oracles.

    If the program passes there, the state is NOT_REPRODUCED. Without an answer, the state is kept.
    The note says what happened, and whether the program fails with `aot_eager` too. Writes to
    `folder`, which it removes. `left` are the seconds that there are; None without a limit.
    """
    longest = START + job.limits.seconds
    seconds = longest if left is None else min(longest, left)
    if seconds <= 0:
        return _noted(finding, NO_TIME.format(slug=finding.slug))
    fronts = [] if job.backend in FRONTS else [FRONT]
    answers = _answers(finding, job, folder, [job.backend, *fronts], seconds)
    if job.backend not in answers:
        late = seconds < longest
        return _noted(finding, NO_TIME.format(slug=finding.slug) if late else UNKNOWN)
    if answers[job.backend][0] != Status.FAILED:
        return msgspec.structs.replace(_noted(finding, PASSES), state=State.NOT_REPRODUCED)
    same = bool(fronts) and answers.get(FRONT) == (Status.FAILED, finding.signature)
    return _noted(finding, f"{ONLY_ORACLE}; {NOT_THE_BACKEND}" if same else ONLY_ORACLE)


def _answers(
    finding: Finding, job: FuzzJob, folder: Path, backends: Sequence[str], seconds: float
) -> dict[str, tuple[str, str]]:
    """Return the status and signature of the program by backend, each of a fresh process.

    The processes run at the same time. A backend without an answer is left out.
    """
    started: dict[str, Child] = {}
    for name in backends:
        (run_dir := folder / name).mkdir(parents=True)
        again = msgspec.structs.replace(
            job, run_dir=str(run_dir), again=(finding.slug,), database="", backend=name, until=None
        )
        path = run_dir / "job.json"
        path.write_bytes(msgspec.json.encode(again))
        started[name] = spawn(
            [sys.executable, "-m", "tcdebug.fuzz.worker", str(path)], os.environ,
            output=run_dir / "output.log", limits=Limits(seconds, None),
        )  # fmt: skip
    found: dict[str, tuple[str, str]] = {}
    for name, child in started.items():
        finished(child)
        for record in Tail(folder / name).new():
            if record["event"] == "fuzz.again":
                found[name] = record["data"]["status"], record["data"]["signature"]
    shutil.rmtree(folder)
    return found


def _noted(finding: Finding, text: str) -> Finding:
    return msgspec.structs.replace(finding, note="; ".join(filter(None, (finding.note, text))))
