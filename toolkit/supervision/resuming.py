"""Finds the interrupted run that a command continues."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec

from tcdebug import __version__
from tcdebug.minifier.processes.job import Job
from tcdebug.reading.run_dir import runs


def job_key(job: Job) -> str:
    """Return a key that is equal for equal commands, so that an interrupted one can continue."""
    text = Path(job.script).read_bytes()
    wanted = msgspec.json.encode(job.wanted).decode()
    parts = (job.mode, job.script, *job.args, job.backend or "", *job.toggles, wanted, __version__)
    return blake2b(text + "\0".join(parts).encode(), digest_size=8).hexdigest()


def interrupted(key: str) -> Path | None:
    """Return the newest run of a job, if it has answers and no report."""
    for known in runs():
        path = known.path / "job.key"
        if path.exists() and path.read_text() == key:
            done = (known.path / "report.json").exists()
            return None if done or not (known.path / "answers.jsonl").exists() else known.path
    return None
