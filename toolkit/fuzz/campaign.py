"""Starts the workers of a campaign and counts their results. Does not import torch."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tcdebug.fuzz.job import BAD_JOB, FuzzJob
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.minifier.processes.job import NVML, own_caches
from tcdebug.minifier.processes.process import Child, Limits, wait
from tcdebug.minifier.processes.spawn import spawn
from tcdebug.reading.run_dir import Tail
from tcdebug.strategies.devices import CPU, CUDA

POLL = 0.2
LATE = 60.0
"""Seconds after which a worker that does not end in time is ended."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # a process with threads cannot be forked, and -j uses the cores
    "PYTHONWARNINGS": "ignore",
}
ON_DEVICE = {
    CPU: {"CUDA_VISIBLE_DEVICES": ""},
    CUDA: {NVML: "1"},
}
"""Variables by device. A worker on a GPU counts devices without initialising CUDA."""


class WorkerFailed(Exception):
    """A worker failed. The message is the end of its output."""


class BadJob(Exception):
    """The job cannot be done. The message has the reason."""


@dataclass
class Campaign:
    """The workers of one command, in one run folder."""

    folder: Path
    tally: CampaignTally
    said: Callable[[CampaignTally], None]
    """Called after events were counted."""

    def run(self, job: FuzzJob, jobs: int) -> None:
        """Run this many workers to their end. Raises WorkerFailed, BadJob."""
        if job.seconds is not None:
            job = msgspec.structs.replace(job, until=time.monotonic() + job.seconds)
        parts = [_part(job, k, jobs) for k in range(jobs)]
        children = [self._start(part) for part in parts]
        tail = Tail(self.folder)
        try:
            while working := [child for child in children if child.ended is None]:
                wait(working, POLL)
                self._count(tail)
        finally:
            for child in children:
                child.end()
            self._count(tail)
        for part, child in zip(parts, children, strict=True):
            status = child.end().returncode  # None for a worker that was late
            if status == BAD_JOB:
                raise BadJob(_last_lines(self._output(part), 1))
            if status:
                text = _last_lines(self._output(part), 20)
                raise WorkerFailed(text or f"it ended with status {status}")

    def _count(self, tail: Tail) -> None:
        self.tally.feed(tail.new())
        self.said(self.tally)

    def _start(self, job: FuzzJob) -> Child:
        path = self.folder / f"job-{job.worker}.json"
        path.write_bytes(msgspec.json.encode(job))
        return spawn(
            [sys.executable, "-m", "tcdebug.fuzz.worker", str(path)],
            {**os.environ, **own_caches(), **ENVIRONMENT, **ON_DEVICE[job.device]},
            output=self._output(job),
            limits=None if job.seconds is None else Limits(job.seconds + LATE, None),
        )

    def _output(self, job: FuzzJob) -> Path:
        return self.folder / f"worker-{job.worker}.log"


def _part(job: FuzzJob, worker: int, jobs: int) -> FuzzJob:
    """Return the part of the job for one worker."""
    examples = job.examples
    if examples is not None:
        examples = examples // jobs + (worker < examples % jobs)
    return msgspec.structs.replace(job, worker=worker, examples=examples, workers=jobs)


def _last_lines(path: Path, count: int) -> str:
    return "\n".join(path.read_text(errors="replace").strip().splitlines()[-count:])
