"""Runs a whole script with layers off, each time in processes with caches of their own."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog, recorded
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import CandidateRan, GraphRounded
from tcdebug.minifier.cases.layer_names import DYNAMO
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.user_frames import TRACEBACK
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.cache_folders import kernel_cache
from tcdebug.minifier.processes.job import (
    SCRIPT_FAILED,
    Job,
    check_session,
    start,
    start_plain,
)
from tcdebug.minifier.processes.process import Child, Ended, Limits, wait
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.subjects.layer_texts import Off, described
from tcdebug.minifier.subjects.own_errors import ended_alike, may_count_compiles, raised_alike
from tcdebug.minifier.subjects.script import LONGER, outcome_of
from tcdebug.minifier.trace.layers_seen import asked_at, layers_seen
from tcdebug.minifier.trace.raised_calls import wrapped_alike

POLL = 0.05
"""Seconds between checks of the budget."""
SLOWER = 5.0
LEAST = 60.0
"""A run may take SLOWER times as long as the failing run, plus LEAST seconds."""
STUCK_MOST = 30.0
"""Once a capture was seen not to end: the seconds that a run may take beyond SLOWER times eager."""
MOST_LINES = 3
"""The limit on lines that are shown of those that ask whether they are being compiled."""
NOT_ALONE = "judged"
"""A word in every event that says that a graph was not judged alone."""


@dataclass
class ScriptRuns:
    """Answers questions about a script. The questions of one call run in parallel.

    `processes` is how many times the script runs with the same caches. The last run counts, unless
    an earlier one fails.
    """

    job: Job
    log: EventLog
    seconds: float
    """The hang limit of a run."""
    deadline: float
    """The time on the monotonic clock at which the budget is used up."""
    sessions: WarmSessions | None = None
    """Forks the process of each run. If it is None, each process is fresh."""
    stuck: bool = False
    """Whether a capture or a pass was seen not to end within the time limit of a graph."""
    failure: Outcome | None = None
    processes: int = 1
    runs: int = 0
    logs: dict[Off, Path] = field(default_factory=dict)
    """The output of the last run of each question."""
    left: int = 0
    """Processes that the last question did not need, because an earlier one failed."""
    last_is_plain: bool = False
    """Whether the last process runs the script without tcdebug."""
    plain_failure: Outcome | None = None
    """How the script fails without tcdebug, if it passes with tcdebug in its process."""
    plain_output: Path = Path()
    stopped: Callable[[], bool] = lambda: False
    """Whether the answers are no longer wanted."""
    harmless: bool = False
    """Whether a run ends before it changes a file."""

    def ask(self, questions: tuple[Off, ...]) -> Mapping[Off, Outcome]:
        """Return how the script ends without these layers.

        A run that fails in a different way in parallel with others is repeated alone, because they
        may have disturbed it. If the script hangs, the run in eager comes first, because its time
        limits the others. Raises BudgetUsed.
        """
        if not questions:
            return {}
        if self.failure is not None and self.failure.kind is Kind.HANG and (DYNAMO,) in questions:
            rest = tuple(off for off in questions if off != (DYNAMO,))
            return {**self.limiting((DYNAMO,)), **self.ask(rest)}
        answers = self._run_in_parallel(questions)
        if len(questions) > 1 and self.failure is not None:
            for off, outcome in answers.items():
                if outcome.failed and not self.failure.same_bug(outcome):
                    answers |= self._run_in_parallel((off,))
        return answers

    def ask_fresh(self, off: Off) -> Outcome:
        """Return how the script ends without these layers in fresh processes. Raises BudgetUsed."""
        sessions, self.sessions = self.sessions, None
        try:
            return self.ask((off,))[off]
        finally:
            self.sessions = sessions

    def ask_each_fresh(self, questions: Sequence[Off]) -> Iterator[Outcome]:
        """Yield how the script ends for each question in fresh processes, two at a time.

        Raises BudgetUsed.
        """
        for pair in zip_longest(questions[::2], questions[1::2]):
            sessions, self.sessions = self.sessions, None
            try:
                outcomes = self._run_in_parallel(tuple(off for off in pair if off is not None))
            finally:
                self.sessions = sessions
            yield from outcomes.values()

    def as_it_is(self) -> Outcome:
        """Return how the script ends in one process and in a second one with the same caches.

        The second process is fresh and has no tcdebug in it, because tcdebug imports parts of torch
        early. If it fails, the script runs again with tcdebug in both processes. If it passes then,
        this run and all later ones use fresh processes. It becomes the failure that is searched
        for. Later runs use as many processes as it took, and a hang limit derived from its
        duration.
        """
        self.processes = 2
        self.last_is_plain = self._may_be_plain
        failure = self.ask(((),))[()]
        if self.last_is_plain and failure.failed and self.left == 0:
            self.last_is_plain, plain = False, failure
            self.plain_output = self.logs[()]
            failure = self.ask(((),))[()]
            if not failure.failed and self.sessions is not None:
                self.sessions = None
                failure = self.ask(((),))[()]
            self.plain_failure = None if failure.failed else plain
        self.last_is_plain = False
        self.processes = 2 - self.left
        self._tighten(failure)
        return failure

    def passes_plainly(self) -> bool:
        """Return whether it passes in a fresh process without tcdebug, if that can be tried."""
        if self.processes != 1 or not self._may_be_plain:
            return False
        self.last_is_plain = True
        try:
            return self.ask_fresh(()).kind is Kind.OK
        except BudgetUsed:
            return False
        finally:
            self.last_is_plain = False

    @property
    def _may_be_plain(self) -> bool:
        """Whether the job runs the script as the user does, so that tcdebug is not needed."""
        return not (self.job.backend or self.job.toggles or self.job.rank)

    def limiting(self, off: Off) -> dict[Off, Outcome]:
        """Return how the script ends. If it passes, its time limits the later runs."""
        answer = self._run_in_parallel((off,))
        self._limit_by(answer[off])
        return answer

    def used(self) -> frozenset[str]:
        """Return which of the layers that only some scripts use was seen in a run."""
        return layers_seen(Path(self.job.run_dir))

    def asked_at(self) -> list[str]:
        """Return notes on the lines that heard in eager that they are being compiled."""
        return [f"it asks here: {line}" for line in asked_at(Path(self.job.run_dir))[:MOST_LINES]]

    def raised_alike(self) -> bool:
        """Return whether the script raises at the same place in eager and as it is."""
        eager, own = (self.logs[off].read_text(errors="replace") for off in ((DYNAMO,), ()))
        return raised_alike(eager, own)

    def wrapped_alike(self) -> bool:
        """Return whether the exception that the script catches in eager is wrapped as it is."""
        given = self.job.toggles
        return wrapped_alike(Path(self.job.run_dir), [*given, DYNAMO], given)

    def ended_alike(self, off: Off) -> bool:
        """Return whether the script raises at the same statement without layers and as it is."""
        return ended_alike(*(self.logs[run].read_text(errors="replace") for run in (off, ())))

    def may_count_compiles(self) -> bool:
        """Return whether the script may fail in eager only because nothing is compiled there."""
        eager = self.logs[(DYNAMO,)].read_text(errors="replace")
        return may_count_compiles(eager, Path(self.job.script).read_text(errors="replace"))

    def may_round(self) -> bool:
        """Return whether a graph passed with a rounding difference, or was not judged alone."""
        for record in recorded(Path(self.job.run_dir)):
            if record["event"] == GraphRounded.kind:
                return True
            if record["event"] == Fallback.kind and NOT_ALONE in record["data"]["what"]:
                return True
        return False

    def traced(self, questions: tuple[Off, ...], root: Path) -> list[Path]:
        """Run the questions again with torch's trace, each with a run folder of its own in `root`.

        Return the folders, which hold the events and graphs of all compiles. Raises BudgetUsed.
        """
        shutil.rmtree(root, ignore_errors=True)  # of a finding that fresh processes contradicted
        for folder in (folders := [root / str(k + 1) for k in range(len(questions))]):
            folder.mkdir(parents=True)
        self._run_in_parallel(questions, folders)
        return folders

    def _tighten(self, failure: Outcome) -> None:
        self.failure = failure
        if failure.kind is not Kind.HANG:
            self.seconds = min(self.seconds, SLOWER * failure.seconds + LEAST)

    def _limit_by(self, passing: Outcome) -> None:
        """Derive the limit of a run with compiles from one without, if that passed."""
        if passing.kind is Kind.OK:
            longest = self.job.limits.seconds
            capture = min(longest, STUCK_MOST) if self.stuck else longest
            self.seconds = min(self.seconds, SLOWER * passing.seconds + capture)

    def _run_in_parallel(
        self, questions: tuple[Off, ...], traces: Sequence[Path] = ()
    ) -> dict[Off, Outcome]:
        """Run the questions in parallel. `traces` are the run folders of runs that are traced."""
        self._check_budget()
        with contextlib.ExitStack() as stack:
            going = [
                _ActiveRun(self, off, stack.enter_context(kernel_cache()), folder)
                for off, folder in zip_longest(questions, traces)
            ]
            try:
                for run in going:
                    run.start()
                while at_work := {run.child: run for run in going if run.child is not None}:
                    self._check_budget()
                    for child, ended in wait(at_work, POLL):
                        at_work[child].take(ended)
            finally:
                for run in going:
                    run.stop()
            for run in going:
                self._record(run)
            self.left = max(run.left for run in going)
            return {run.off: run.outcome for run in going}

    def _check_budget(self) -> None:
        if self.stopped() or time.monotonic() > self.deadline:
            raise BudgetUsed

    def _record(self, run: _ActiveRun) -> None:
        self.logs[run.off] = run.output
        self.log.emit(ran(run.number, run.off, run.outcome))


def ran(number: int, off: Off, outcome: Outcome) -> CandidateRan:
    """Return the event of a run of the script."""
    return CandidateRan(
        number, f"the script {described(off)}", list(off), 0,
        outcome.kind.value, outcome.signature, False, round(outcome.seconds, 3), 0.0,
    )  # fmt: skip


@dataclass(frozen=True)
class Remaining:
    """How a script ends with the culprits of its graphs off, and how it ends in eager."""

    outcome: Outcome
    eager: Outcome | None = None
    """None if the script does not fail with the culprits off."""

    @property
    def fails_compiled_only(self) -> bool:
        """Whether it still fails, and passes in eager."""
        return self.outcome.failed and self.eager is not None and self.eager.kind is Kind.OK


def remaining_failure(
    job: Job,
    log: EventLog,
    seconds: float,
    units: Sequence[str],
    sessions: WarmSessions | None,
) -> Remaining:
    """Run the script with these units off, and in eager if it still fails. Raises BudgetUsed."""
    runs, off = _runs(job, log, seconds, sessions), tuple(units)
    outcome = runs.ask((off,))[off]
    if not outcome.failed:
        return Remaining(outcome)
    return Remaining(outcome, runs.ask(((DYNAMO,),))[(DYNAMO,)])


def outcome_without(
    job: Job,
    seconds: float,
    units: Sequence[str],
    sessions: WarmSessions | None,
    stopped: Callable[[], bool],
) -> Outcome:
    """Return how the script ends with these units off, without an event.

    Raises BudgetUsed, also once `stopped` returns True.
    """
    runs, off = _runs(job, EventLog(None), seconds, sessions), tuple(units)
    runs.stopped = stopped
    return runs.ask((off,))[off]


def _runs(job: Job, log: EventLog, seconds: float, sessions: WarmSessions | None) -> ScriptRuns:
    longest = max(job.limits.seconds * LONGER, LEAST)
    return ScriptRuns(job, log, longest, time.monotonic() + seconds, sessions)


class _ActiveRun:
    """A run of the script: a process, or several one after another."""

    def __init__(self, runs: ScriptRuns, off: Off, caches: Path, trace: Path | None) -> None:
        runs.runs += 1
        plain = "harmless" if runs.harmless else "layers"
        mode, folder = ("traced", str(trace)) if trace else (plain, runs.job.run_dir)
        self.job = msgspec.structs.replace(runs.job, mode=mode, run_dir=folder)
        self.runs, self.off, self.caches, self.number = runs, off, caches, runs.runs
        self.output = Path(runs.job.run_dir) / f"layers-{self.number}.log"
        self.outcome = Outcome(Kind.OK)
        self.left = runs.processes
        self.child: Child | None = None

    def start(self) -> None:
        """Start the next process."""
        self.left -= 1
        toggles = [*self.runs.job.toggles, *self.off]
        variables = {
            "TCDEBUG_OFF": ",".join(toggles),
            "TCDEBUG_RUN_DIR": self.job.run_dir,
            "TCDEBUG_ARTIFACTS": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(self.caches),
        }
        limits = Limits(self.runs.seconds, None)
        if self.is_plain:
            self.child = start_plain(self.job, self.output, variables, limits)
            return
        self.child = start(self.job, self.output, variables, limits, self.runs.sessions)

    @property
    def is_plain(self) -> bool:
        """Whether the process that was started last runs without tcdebug."""
        return self.runs.last_is_plain and self.left == 0

    def take(self, ended: Ended) -> None:
        """Record how a process ended, and start the next if it did not fail."""
        self.child = None
        if not self.is_plain:
            check_session(self.job, ended, self.output)
        if ended.timed_out:
            message = f"no end after {self.runs.seconds:.0f} s"
            outcome = Outcome(Kind.HANG, "script", "script | hang", message)
        else:
            text, status = self.output.read_text(errors="replace"), ended.returncode
            raised = self.is_plain and status == 1 and TRACEBACK in text
            prints = self.runs.job.wanted.prints
            outcome = outcome_of(SCRIPT_FAILED if raised else status, text, prints)
        outcome = replace(outcome, seconds=ended.seconds)
        if outcome.failed and not self.runs.job.wanted.counts(outcome):
            outcome = replace(outcome, kind=Kind.INVALID)
        self.outcome = outcome
        if self.left and not outcome.failed:
            self.start()

    def stop(self) -> None:
        """End the process if it has not ended."""
        if self.child is not None:
            self.child.end()
            self.child = None
