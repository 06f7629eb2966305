"""Starts the workers of a campaign and counts what they tell; no torch here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tcdebug.fuzz.job import BAD_JOB, FuzzJob
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.minifier.processes.job import own_caches
from tcdebug.reading.run_dir import Tail

POLL = 0.2
LATE = 900.0
"""Seconds beyond its own that a worker is given to shrink and bisect what it found."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # what runs on several threads cannot be forked, and -j has the cores
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "ignore",
}


class WorkerFailed(Exception):
    """A worker ended by a fault; the message is the end of what it printed."""


class BadJob(Exception):
    """The job cannot be done; the message says why."""


@dataclass
class Campaign:
    """The workers of one command, in one run folder."""

    folder: Path
    tally: CampaignTally
    said: Callable[[CampaignTally], None]
    """Called when something was counted."""

    def run(self, job: FuzzJob, jobs: int) -> None:
        """Run so many workers to their end. Raises WorkerFailed, BadJob."""
        parts = [_part(job, k, jobs) for k in range(jobs)]
        processes = [self._start(part) for part in parts]
        tail = Tail(self.folder)
        end = time.monotonic() + (job.seconds or 1e9) + LATE
        try:
            while any(p.poll() is None for p in processes) and time.monotonic() < end:
                time.sleep(POLL)
                self._count(tail)
        finally:
            ended = [process.poll() or 0 for process in processes]
            for process in processes:
                process.kill()
                process.wait()
            self._count(tail)
        for part, status in zip(parts, ended, strict=True):
            if status == BAD_JOB:
                raise BadJob(_last_lines(self._output(part), 1))
            if status:
                text = _last_lines(self._output(part), 20)
                raise WorkerFailed(text or f"it ended with status {status}")

    def _count(self, tail: Tail) -> None:
        self.tally.feed(tail.new())
        self.said(self.tally)

    def _start(self, job: FuzzJob) -> subprocess.Popen[bytes]:
        path = self.folder / f"job-{job.worker}.json"
        path.write_bytes(msgspec.json.encode(job))
        with self._output(job).open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tcdebug.fuzz.worker", str(path)],
                env={**os.environ, **own_caches(), **ENVIRONMENT},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _output(self, job: FuzzJob) -> Path:
        return self.folder / f"worker-{job.worker}.log"


def _part(job: FuzzJob, worker: int, jobs: int) -> FuzzJob:
    """The share of one worker."""
    examples = job.examples
    if examples is not None:
        examples = examples // jobs + (worker < examples % jobs)
    return msgspec.structs.replace(job, worker=worker, examples=examples)


def _last_lines(path: Path, count: int) -> str:
    return "\n".join(path.read_text(errors="replace").strip().splitlines()[-count:])
