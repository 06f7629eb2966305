"""Runs the sessions of a command, each a process that runs the script.

This process does not import torch. torch runs in other processes, which may die.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import (
    RunEnd,
    RunStart,
    WorkerExit,
    WorkerStart,
)
from tcdebug.compiler.events.schema import Fallback
from tcdebug.display.progress import ProgressDisplay
from tcdebug.display.removed import show_removed
from tcdebug.minifier.capture.capture_marks import Patience, remove_marks
from tcdebug.minifier.investigation.report import STATUS_EXIT, Report
from tcdebug.minifier.processes.job import NVML, REPORT, Job, check_session, start
from tcdebug.minifier.processes.process import Child, Limits, wait
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.reading.run_dir import Tail, find
from tcdebug.supervision.descendants import Descendants
from tcdebug.supervision.environment import environment
from tcdebug.supervision.recorded_graphs import STUCK, candidates_run
from tcdebug.supervision.resuming import interrupted, job_key

POLL = 0.1
GRACE = 5.0
"""Seconds that a session may take to end after its budget is used up."""
SHARE_OF_STILLNESS, LEAST_STILLNESS = 0.25, 45.0
"""The part of the budget, and the least seconds, after which a capture that stays at one line
counts as endless. Without that, a small budget would leave no time to confirm this."""
LATE = -9
"""The exit status of a session that had to be killed."""

ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "eager": {},
    # else torch would initialise CUDA to count devices, and forked candidates could not use them
    "search": {NVML: "1"},
    "minimise": {NVML: "1"},
}


@dataclass
class Supervisor:
    """One command on one script: its run folder, its sessions and their events."""

    command: str
    job: Job
    progress: ProgressDisplay
    log: EventLog
    folder: Path
    started: float
    _tail: Tail = field(init=False)
    _descendants: dict[int, str] = field(default_factory=dict)
    """Commands of the script's child processes that load torch, by process id."""
    sessions: WarmSessions | None = None
    """What forks the processes that run the script. If there is none, each is a fresh one."""
    spent_before: float = field(init=False)
    """CPU-seconds before the command: of a program that calls tcdebug, or of other commands, if a
    shell has replaced itself with this one."""
    endless: str = ""
    """What did not end when a session was `STUCK`: a capture, a function of torch, or a pass."""
    stuck_at: str = ""
    """The line of the program at which a capture that did not end was, if that is known."""
    stays: bool = False
    """Whether that capture stayed at that line, so that it need not be searched for."""
    meanwhile: Callable[[], None] = lambda: None
    """Called again and again while a session runs."""

    def __post_init__(self) -> None:
        self._tail = Tail(self.folder)
        self.spent_before = _cpu_seconds(self.sessions)

    def announce(self) -> None:
        """Write the first events of the run."""
        argv = [self.command, self.job.script, *self.job.args]
        self.log.emit(RunStart(self.command, argv, str(Path.cwd())))
        self.log.emit(environment())

    def finish(self, status: int, *, healthy: bool) -> None:
        """Write the last event of the run. A run that has ended is not continued.

        A run that is not `healthy`, or does not get here, is never pruned.
        """
        if status != STATUS_EXIT["interrupted"]:
            (self.folder / "job.key").unlink(missing_ok=True)
        run_folder.finish(self.folder, healthy=healthy)
        self.log.emit(RunEnd(status, round(time.monotonic() - self.started, 3)))

    def costed(self, report: Report) -> Report:
        """Return the report with the cost of the command so far."""
        return msgspec.structs.replace(
            report,
            reruns=max(report.reruns, candidates_run(self.folder)),
            seconds=round(time.monotonic() - self.started, 3),
            cpu_seconds=round(_cpu_seconds(self.sessions) - self.spent_before, 3),
        )

    @property
    def seconds_left(self) -> float:
        """The remaining seconds of the time limit."""
        return self.job.seconds - (time.monotonic() - self.started)

    def session(self, mode: str, **changes: Any) -> int:
        """Run the script in a session and show its progress; its exit status, or LATE.

        `changes` are made to the job. Raises SessionError.
        """
        seconds = max(self.seconds_left, 0.0)
        remove_marks(self.folder)
        job = msgspec.structs.replace(self.job, mode=mode, seconds=seconds, **changes)
        limits = Limits(seconds + GRACE, None, excuse=GRACE)
        output = self.folder / f"{mode}.log"
        child = start(job, output, ENVIRONMENT[mode], limits, self.sessions)
        self.log.emit(WorkerStart(mode, child.pid))
        ending = LATE
        try:
            ending = self._follow(child)
        finally:
            ended = child.end()
        self.progress.feed(self._tail.new())
        status = ending if ended.returncode is None else ended.returncode
        self.log.emit(WorkerExit(mode, child.pid, status, round(ended.seconds, 3)))
        check_session(job, ended, output)
        return status

    def _follow(self, child: Child) -> int:
        """Show the progress of a session until it ends, or its time or that of a capture is up.

        Return the status of the session if it has to be ended.
        """
        seen = Descendants(child.pid, self._descendants)
        limit = self.job.limits.seconds
        still = max(SHARE_OF_STILLNESS * self.job.seconds, LEAST_STILLNESS)
        patience = Patience(self.folder, limit, min(limit, still))
        while not wait([child], POLL):
            self.progress.feed(self._tail.new())
            seen.look()
            self.meanwhile()
            if (self.folder / REPORT).exists():
                break  # a child process of the script has found it: the others need not continue
            if endless := patience.endless():
                self.endless, self.stuck_at = endless, patience.place
                self.stays = patience.stays
                return STUCK
        return LATE

    def read_report(self, name: str) -> Report | None:
        """Return the report in a file of the run folder; None if there is no such file."""
        path = self.folder / name
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=Report)

    def unwatched(self) -> list[str]:
        """Return notes on child processes whose graphs were not searched, one line each."""
        watched = {
            r["data"]["worker_pid"]
            for r in find(str(self.folder)).events()
            if r["event"] == "worker.start"
        }
        left = {c: None for pid, c in self._descendants.items() if pid not in watched}
        return [f"a process that uses torch was not watched: {command}" for command in left]


def _cpu_seconds(sessions: WarmSessions | None) -> float:
    """Return the CPU-seconds of this process, its ended children and the process of `sessions`."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    warm = sessions.cpu_seconds if sessions else 0.0
    return time.process_time() + usage.ru_utime + usage.ru_stime + warm


def begin(
    command: str,
    job: Job,
    *,
    quiet: bool,
    fresh: bool = False,
    notes: bool = True,
    progress: ProgressDisplay | None = None,
    sessions: WarmSessions | None = None,
) -> Supervisor:
    """Create a run folder and its supervisor, or continue an interrupted run of the same job.

    Without `notes`, it does not say which runs were pruned. `progress` is a display that is shared
    with another run. `sessions` forks the processes that run the script.
    """
    key = job_key(job)
    earlier = None if fresh else interrupted(key)
    folder = run_folder.create(command)
    run_folder.begin(folder)
    (folder / "job.key").write_text(key)
    resume = str(earlier) if earlier else None
    job = msgspec.structs.replace(job, run_dir=str(folder.resolve()), resume=resume)
    progress = progress or ProgressDisplay(quiet=quiet)
    if notes:
        show_removed(folder)
    if earlier is not None:
        progress.say(f"continuing {earlier.name}")
    log = EventLog(folder.resolve(), own=True)
    supervisor = Supervisor(
        command,
        job,
        progress,
        log,
        folder.resolve(),
        time.monotonic(),
        sessions=sessions,
    )
    supervisor.announce()
    if folder.parent.resolve() != Path(run_folder.BASE).resolve():
        why = f"the run is in {folder}; give its path to other commands"
        log.emit(Fallback(f"{Path(run_folder.BASE).resolve()} is not writable", why))
    return supervisor
