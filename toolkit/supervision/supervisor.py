"""Runs the sessions of a command: a search in the script's graphs, then in the script as a whole.

This process does not import torch. torch runs in other processes, which may die.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping, Sequence
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
from tcdebug.minifier.capture.capture_marks import capturing_for, remove_marks
from tcdebug.minifier.investigation.eager_report import eager_report
from tcdebug.minifier.investigation.report import STATUS_EXIT, Report, suspicion
from tcdebug.minifier.investigation.script_failure import ScriptFailure, judge_script
from tcdebug.minifier.investigation.script_line import find_line
from tcdebug.minifier.investigation.whole_script import investigate_script
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import (
    PARTIAL,
    REPORT,
    SCRIPT_FAILED,
    SCRIPT_ON_DEVICES,
    Job,
    check_session,
    start,
)
from tcdebug.minifier.processes.process import Child, Limits, wait
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.reading.run_dir import Tail, find
from tcdebug.supervision.descendants import Descendants
from tcdebug.supervision.eager_failures import NO_GRAPH, culprit_notes, eager_problem, input_notes
from tcdebug.supervision.environment import environment
from tcdebug.supervision.graph_behind_script import lost_validation, slow_compile
from tcdebug.supervision.ranks_alone import search_ranks
from tcdebug.supervision.recorded_graphs import (
    STUCK,
    candidates_run,
    fallbacks,
    graph_raised,
    nothing_captured,
    recording_notes,
)
from tcdebug.supervision.resuming import interrupted, job_key

POLL = 0.1
PASSES_OF_A_GRAPH = 5
"""With so many runs, a failure with a rate of 70 % is missed in one of 400 cases."""
RUNS_TO_CONFIRM = 3
"""Runs of a script in which its layer is confirmed: two at a time, and the start of torch."""
GRACE = 5.0
"""Seconds that a session may take to end after its budget is used up."""
LATE = -9
"""The exit status of a session that had to be killed."""

ENVIRONMENT: Mapping[str, Mapping[str, str]] = {
    "eager": {},
    # else torch would initialise CUDA to count devices, and forked candidates could not use them
    "search": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
    "minimise": {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
}

WHOLE_SCRIPTS = (
    "each candidate ran the whole script in a fresh process: none of its graphs failed in a "
    "process that was forked before CUDA was initialised"
)


@dataclass
class Supervisor:
    """One command on one script."""

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

    def __post_init__(self) -> None:
        self._tail = Tail(self.folder)

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

    # -- the search -------------------------------------------------------------------------

    def search(self) -> Report:
        """Return the result of the search, with the cost of the whole command."""
        report = eager_problem(self.job.script, str(self.folder)) or self._search()
        report = msgspec.structs.replace(report, notes=[*input_notes(report), *report.notes])
        notes = list(dict.fromkeys([*report.notes, *fallbacks(self.folder)]))
        return self.costed(msgspec.structs.replace(report, notes=notes))

    def costed(self, report: Report) -> Report:
        """Return the report with the cost of the command so far."""
        return msgspec.structs.replace(
            report,
            reruns=max(report.reruns, candidates_run(self.folder)),
            seconds=round(time.monotonic() - self.started, 3),
            cpu_seconds=round(_cpu_seconds(self.sessions), 3),
        )

    def _search(self) -> Report:
        """Search the script's graphs. If none fails, run the script in eager and compiled."""
        try:
            recorded = self._searched()
            if report := self.read_report(REPORT):
                return report
            if recorded == STUCK:
                seconds = self.job.limits.seconds
                self.progress.say(f"Dynamo did not finish a capture within {seconds:.0f} s")
            if recorded == LATE:
                return self._unfinished("budget", "its graphs were searched")
            if report := search_ranks(self):
                return report
            wanted = self.job.wanted
            if not (wanted.check or wanted.graphs_only):
                return self._by_layers(recorded)
            self.progress.say("no graph fails alone: running the script in eager")
            status = self.session("eager")
            if status == LATE:
                return self._unfinished("budget", "it ran in eager")
            if status != 0:
                return self._eager_failed(status)
            return self._sometimes_failing() or self._whole_script(recorded)
        except KeyboardInterrupt:
            return self._unfinished("interrupted")

    def _unfinished(self, status: str, when: str = "", known: Sequence[str] = ()) -> Report:
        """Return the best result so far of a search that was ended early, with notes."""
        report = self.read_report(PARTIAL) or Report(status, run_dir=str(self.folder))
        late = [f"the budget was used up while {when}"] if when else []
        if not report.faults or not any(fault.culprits for fault in report.faults):
            late += culprit_notes(find(str(self.folder)).events())
        notes = [*known, *report.notes, *late]
        return msgspec.structs.replace(report, status=status, confirmed=False, notes=notes)

    def _sometimes_failing(self) -> Report | None:
        """Return the report of a graph that passed once and fails in one of its later runs."""
        if self.job.wanted.oracle == "perf":  # the machine may cause a slow run
            return None
        self.progress.say(f"no graph failed: each is run up to {PASSES_OF_A_GRAPH} times")
        self._searched(PASSES_OF_A_GRAPH)
        return self.read_report(REPORT)

    @property
    def seconds_left(self) -> float:
        """The remaining seconds of the time limit."""
        return self.job.seconds - (time.monotonic() - self.started)

    def _searched(self, passes: int = 1) -> int:
        """Search the graphs, each of which must pass this many times; the script's exit status."""
        return self.session("search", passes=passes)

    def session(self, mode: str, **changes: Any) -> int:
        """Run the script in a session and show its progress; its exit status, or LATE.

        `changes` are made to the job. Raises SessionError.
        """
        seconds = max(self.seconds_left, 0.0)
        remove_marks(self.folder)
        job = msgspec.structs.replace(self.job, mode=mode, seconds=seconds, **changes)
        limits = Limits(seconds + GRACE, None)
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
        while not wait([child], POLL):
            self.progress.feed(self._tail.new())
            seen.look()
            if (self.folder / REPORT).exists():
                break  # a child process of the script has found it: the others need not continue
            if capturing_for(self.folder) > self.job.limits.seconds:
                return STUCK
        return LATE

    def _eager_failed(self, status: int) -> Report:
        how = "it raised" if status == SCRIPT_FAILED else f"exit status {status}"
        return eager_report(self.folder, self.folder / "eager.log", how)

    def read_report(self, name: str) -> Report | None:
        """Return the report in a file of the run folder; None if there is no such file."""
        path = self.folder / name
        if not path.exists():
            return None
        return msgspec.json.decode(path.read_bytes(), type=Report)

    # -- the script as a whole --------------------------------------------------------------

    def _by_layers(self, recorded: int, contradicted: str | None = None) -> Report:
        """Run the unchanged script. If it fails, find the layer at fault, and then the unit.

        If forks of a warm process showed a layer that is `contradicted`, all processes are fresh.
        """
        slow: Report | None = None
        known: list[str] = []
        sessions = self.sessions if contradicted is None else None
        try:
            failed = judge_script(
                self.job, self.log, self.seconds_left, self.progress.say,
                stuck=recorded == STUCK, sessions=sessions,
            )  # fmt: skip
            if isinstance(failed, Report):
                return failed
            if failed is None:
                return self._healthy(recorded)
            if self.job.bisect and failed.in_backend:
                slow, notes = slow_compile(self, failed)
                if slow is not None and slow.confirmed:
                    return slow
                known += notes
            if failed.in_backend:
                failed = failed.within_backend()
            failed = failed.checked_for_rounding()
            if slow is not None and not failed.in_budget:
                return slow
        except BudgetUsed:
            return self._unfinished("budget", "the script ran as a whole", known)
        self.progress.say(failed.announcement)
        if self.job.bisect and failed.has_units and graph_raised(self.folder):
            lost, notes = lost_validation(self, failed)
            if lost is not None:
                return lost
            known += notes
        if self.job.bisect and failed.has_units and failed.finding.layer != contradicted:
            units = self._whole_script(recorded, failed)
            if units.status == "confirmed":
                layer = failed.finding.layer
                return msgspec.structs.replace(units, layer=layer, ladder=failed.ladder)
            known += suspicion(units)
        report = failed.report()
        if report is None:
            self.progress.say("fresh processes show something else: running the script in those")
            return self._by_layers(recorded, failed.finding.layer)
        known += [*self._candidates_notes(), *self._whole_notes(recorded)]
        report = msgspec.structs.replace(report, notes=[*known, *report.notes])
        if report.status == "confirmed":
            (fault,) = report.faults
            self.progress.say(
                f"seen in fresh processes: {fault.fails} fails, {fault.passes} passes"
            )
        if self.job.bisect and failed.in_dynamo and report.status == "confirmed":
            # where Dynamo raises, it names the line
            report = report if report.faults[0].lines else self._with_line(report, failed)
        return report

    def _healthy(self, recorded: int) -> Report:
        """Return the report of a script that passed, unless one of its graphs fails at times."""
        notes = self._whole_notes(recorded)
        if not notes and nothing_captured(self.folder):
            return Report("no_failure", run_dir=str(self.folder), notes=[NO_GRAPH])
        healthy = Report("no_failure", run_dir=str(self.folder), notes=notes)
        return self._sometimes_failing() or healthy

    def _with_line(self, report: Report, failed: ScriptFailure) -> Report:
        """Return the report of a script that Dynamo makes fail, with the statement that does."""
        self.progress.say("looking for the statement that Dynamo captures wrongly")
        found = find_line(self.job, self.log, self.seconds_left, self.sessions, failed.runs.seconds)
        if found is None:
            return report
        note = f"it fails if Dynamo captures this statement ({found.unit}): {found.subject}"
        return msgspec.structs.replace(report, notes=[note, *report.notes])

    def _whole_notes(self, recorded: int) -> list[str]:
        """Notes for a report of the whole script on how its graphs were judged."""
        recording = recording_notes(recorded, self.folder)
        return [*recording, *self._unwatched()]

    def _whole_script(self, recorded: int, failed: ScriptFailure | None = None) -> Report:
        """Run the script compiled, and investigate how it fails; `failed` if its layer is known."""
        if self.job.wanted.graphs_only:
            return Report("no_failure", run_dir=str(self.folder))
        self.progress.say("running the whole script compiled")
        layer = failed.known_layer if failed else None
        # if no unit is named, the layer has to be confirmed
        kept = RUNS_TO_CONFIRM * failed.failure.seconds if failed else 0.0
        left, seen = self.seconds_left, failed.seen if failed else []
        alone = failed.seen_alone if failed else []
        sessions = failed.runs.sessions if failed else self.sessions
        report = investigate_script(self.job, self.log, left, layer, seen, alone, sessions, kept)
        notes = [*self._candidates_notes(), *self._whole_notes(recorded)]
        return msgspec.structs.replace(report, notes=[*notes, *report.notes])

    def _candidates_notes(self) -> list[str]:
        """Return the note on why the candidates of a script on a GPU were whole scripts."""
        events = find(str(self.folder)).events()
        purposes = {r["data"]["purpose"] for r in events if r["event"] == "worker.start"}
        return [WHOLE_SCRIPTS] * (SCRIPT_ON_DEVICES in purposes)

    def _unwatched(self) -> list[str]:
        """Notes on child processes whose graphs were not searched, one line each."""
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
