"""A minimised script: the task, the result, and its place in the report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import ReproWrite
from tcdebug.minifier.cases.criteria import PrintedLine
from tcdebug.minifier.cases.layer_names import (
    DYNAMO,
    DYNAMO_CODE,
    OPERATORS,
    PROGRAM_PASSES,
    WRAPPER,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.investigation.report import Report, ReportedFault, ReportedScript
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.repros.verify import PASSES, UNRESOLVED, Verified, verify
from tcdebug.minifier.search.algorithms import first_bad
from tcdebug.minifier.subjects.printed import is_printed

MINIMISE = "minimise"
"""The mode of the session that minimises a script."""
TASK, RESULT = "minimising.json", "minimised.json"
"""The files with the task and the result of that session, in the run folder."""
SMALLER = "smaller.py"
"""The file with the smallest version while that session searches."""
KINDS = (Kind.EXCEPTION, Kind.WRONG, Kind.CRASH, Kind.HANG)
"""The kinds of failures whose scripts are minimised."""
NOT_MINIMISED = "the script was not minimised"
OFF, IN_EAGER, ALONE = "with the culprit off", "in eager", "alone"
"""How the last checks run a version, apart from its failing run."""
UNTRIED = {
    OFF: "no time was left to run the minimised script with the culprit off in a fresh process",
    IN_EAGER: "no time was left to run the minimised script in eager in a fresh process",
    ALONE: "no time was left to run the minimised script without its repro",
}
"""Notes on checks that did not end in time."""
LAST_RUNS = 1.0
"""The runs of a version before it is reported take so many times as long, two at a time, as a run
of the script's repro, which was larger, and ran beside two other processes."""


class MinimisingTask(msgspec.Struct, frozen=True):
    """A script that fails as a whole, and what is known of the failure."""

    kind: str
    off: list[str]
    """Everything that is off when the script passes; empty if that is not known."""
    layer: str
    seconds: float
    run_seconds: float = 0.0
    """How long a run of the script's repro took."""
    signature: str = ""
    """That of the failure; empty if any failure of this kind counts."""
    lines: list[str] = []
    """What Dynamo captures wrongly, as `FILE:N: source`, if that is known."""

    @property
    def eager(self) -> list[str]:
        """What is off in a run in eager, in which the script passes.

        Gated passes run without torch.compile too.
        """
        if self.layer in (WRAPPER, DYNAMO_CODE, OPERATORS):
            return self.off
        return [DYNAMO, PROGRAM_PASSES] if self.layer == PROGRAM_PASSES else [DYNAMO]


class SmallVersion(msgspec.Struct, frozen=True):
    """A smaller version of a script, and how it is started."""

    text: str
    args: tuple[str, ...] = ()
    alone: bool = False
    """Whether it runs in an empty folder."""


class MinimisedScript(msgspec.Struct, frozen=True):
    """The smallest version of a script. If there is none, `text` is empty and `reason` says why."""

    text: str
    args: tuple[str, ...] = ()
    alone: bool = False
    """Whether it runs in an empty folder."""
    processes: int = 1
    """The number of processes that run one after another with the same caches."""
    message: str = ""
    """The exception that it ends with."""
    lines_before: int = 0
    lines_after: int = 0
    runs: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    reason: str = ""
    ended: bool = True
    """True if nothing more could be removed, False if the time ran out first."""
    earlier: tuple[SmallVersion, ...] = ()
    """The larger versions on the way to it, the largest first."""


def minimising_task(report: Report, seconds: float, run_seconds: float) -> MinimisingTask | None:
    """Return the task of minimising the script of a report; None if it does not fail as a whole."""
    if report.graph is not None or len(report.faults) != 1 or seconds <= 0:
        return None
    (fault,) = report.faults
    failure = fault.failure
    if failure.direction != "script" or failure.kind not in KINDS or not fault.fails:
        return None
    off = [*(c.unit for c in fault.culprits), *fault.alternatives] if fault.passes else []
    units = list(dict.fromkeys(off))
    return MinimisingTask(
        failure.kind, units, report.layer, seconds, run_seconds, failure.signature, fault.lines
    )


def reason_not_minimised(job: Job, report: Report, seconds: float, *, program: bool) -> str:
    """Return why a script that fails as a whole is not minimised.

    Empty if it is minimised, if a graph fails alone, if it fails in eager, or if the job does not
    ask for it. `program` says that the script only starts a module, code, a command or a call.
    `seconds` is the time that is left.
    """
    failure = report.faults[0].failure if report.faults else report.failure
    if report.graph is not None or failure is None or failure.direction != "script":
        return ""
    if report.status == "fails_in_eager":
        return ""
    if not (job.minimise and job.script_seconds):
        return ""
    if program:
        return "it is started by -m, -c, a command or a call, and only a script can be rewritten"
    if len(report.faults) != 1:
        return (
            f"it has {len(report.faults)} faults, and only a script with one fault is minimised"
            if report.faults
            else "its failure has no repro"
        )
    (fault,) = report.faults
    if fault.failure.kind not in KINDS:
        return f"its failure is of the kind {fault.failure.kind}, not {', '.join(KINDS)}"
    if report.status == "budget" and not fault.fails:
        return "no time was left to run its repro"
    if not fault.fails:
        return "its repro does not fail in a fresh process"
    if job.wanted.check:
        return "the command of --check decides what fails, and is not run for smaller versions"
    return "" if seconds > 0 else "too little time was left to check a smaller version"


def with_minimised_script(
    job: Job,
    report: Report,
    task: MinimisingTask,
    result: MinimisedScript,
    log: EventLog,
    seconds_left: Callable[[], float],
) -> Report:
    """Return the report with the smallest version of the script that fails and passes like it.

    In fresh processes, it must fail as it is, and pass in eager and with the culprit off.
    """
    if not result.text:
        note = f"{NOT_MINIMISED}: {result.reason}"
        return msgspec.structs.replace(report, notes=[*report.notes, note])
    (fault,) = report.faults
    checking = _Checking(job, fault, task, result, log, seconds_left)
    before = checking.path.read_text()
    kept = checking.kept()
    problem = next(iter(checking.problems), "")
    if kept is None:
        checking.path.write_text(before)
        checking.short.unlink()
        note = f"{NOT_MINIMISED}: in a fresh process, its small version {problem}"
        return msgspec.structs.replace(report, notes=[*report.notes, note])
    checking.write(kept)
    checking.path.with_suffix(".log").write_text(checking.ran[kept].failing.output)
    report = msgspec.structs.replace(report, notes=[*report.notes, *checking.ran[kept].untried])
    if problem:
        note = f"a version with {result.lines_after} lines is not kept: in a fresh process, it"
        report = msgspec.structs.replace(report, notes=[*report.notes, f"{note} {problem}"])
        size = ScriptText(kept.text).size
        result = msgspec.structs.replace(
            result, text=kept.text, args=kept.args, alone=kept.alone, lines_after=size
        )
    return _documented(report, fault, checking.short, result)


@dataclass
class _Checking:
    """The last checks of the versions of a script, in fresh processes."""

    job: Job
    fault: ReportedFault
    task: MinimisingTask
    result: MinimisedScript
    log: EventLog
    seconds_left: Callable[[], float]
    problems: list[str] = field(default_factory=list)
    """What is wrong with the versions that were checked and do not pass."""
    ran: dict[SmallVersion, _Checked] = field(default_factory=dict)
    """What the checks of each version showed."""

    @property
    def path(self) -> Path:
        """The repro, which runs the version that was written last."""
        return Path(self.fault.repro or "")

    @property
    def short(self) -> Path:
        """The version itself."""
        return self.path.with_name("short.py")

    def kept(self) -> SmallVersion | None:
        """Return the smallest version that passes the checks; None if none is found in time."""
        result = self.result
        smallest = SmallVersion(result.text, result.args, result.alone)
        accepted, passing = [*result.earlier, smallest], 0

        def fails(count: int) -> bool:
            nonlocal passing
            problem = self._problem(accepted[count - 1])
            passing = passing if problem else max(passing, count)
            return bool(problem)

        with contextlib.suppress(BudgetUsed):
            if fails(len(accepted)):
                first_bad(0, len(accepted), fails)
        return accepted[passing - 1] if passing else None

    def write(self, version: SmallVersion) -> None:
        """Write a version, and the repro that runs it."""
        self.short.write_text(f"{version.text.strip()}\n")
        shown, seconds = self.fault.failure, self.task.run_seconds
        message = self.result.message if version.text == self.result.text else ""
        outcome = Outcome(
            Kind(shown.kind), "script", shown.signature, message or shown.message, seconds=seconds
        )
        small = msgspec.structs.replace(self.job, script=str(self.short), args=[*version.args])
        folder, working = Path(self.job.script).resolve().parent, None
        if version.alone:
            folder = working = self.short.resolve().parent
        processes = self.result.processes
        write_repro(small, outcome, self.task.off, self.path, processes, folder, working)

    def _problem(self, version: SmallVersion) -> str:
        """Return what is wrong with a version, or nothing. Raises BudgetUsed.

        The first one is always checked.
        """
        left = self.seconds_left()
        if self.ran and left < LAST_RUNS * self.task.run_seconds:
            raise BudgetUsed
        self.write(version)
        self.log.emit(ReproWrite(str(self.path), ScriptText(version.text).size, "script"))
        direct = version.alone and not version.args and self.result.processes == 1
        short = self.short if direct else None
        checked = _checked(self.path, self.task, short, self.job.wanted.prints, self.seconds_left)
        self.log.emit(checked.failing.event(self.path))
        self.ran[version] = checked
        self.problems += [checked.problem] if checked.problem else []
        return checked.problem


@dataclass(frozen=True)
class _Checked:
    """How a version failed in a fresh process, what is wrong with it, and what was not tried."""

    failing: Verified
    problem: str = ""
    untried: tuple[str, ...] = ()
    """The checks for which no time was left, apart from the commands that a report shows."""


def _checked(
    path: Path,
    task: MinimisingTask,
    short: Path | None,
    prints: PrintedLine | None,
    seconds_left: Callable[[], float],
) -> _Checked:
    """Run a repro as it is, with the culprit off, and in eager.

    `short` is the minimised script if it must also fail without the repro. It also fails if it does
    not print the line that it must print.
    """
    passing = {OFF: task.off} if task.off and task.off != task.eager else {}
    passing[IN_EAGER] = task.eager

    def run(toggles: Sequence[str]) -> Verified:
        return verify(path, toggles, seconds_left())

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run, ())
        others = {how: pool.submit(run, toggles) for how, toggles in passing.items()}
        fails_alone = (
            pool.submit(_fails_alone, short, task, prints, seconds_left) if short else None
        )
        failing, alone = first.result(), fails_alone.result() if fails_alone else True
        ran = {how: other.result() for how, other in others.items()}
    shown = OFF if OFF in ran else IN_EAGER
    if failing.late or (task.off and ran[shown].late):
        return _Checked(failing, "did not end in time")
    if not failing.reproduced:
        return _Checked(failing, "does not fail in the same way")
    if alone is False:
        return _Checked(failing, "does not fail without the repro around it")
    late = [how for how, other in ran.items() if other.late]
    wrong = [how for how, other in ran.items() if not (other.passed or other.late)]
    untried = tuple(UNTRIED[how] for how in (*late, *([ALONE] if alone is None else [])))
    return _Checked(failing, " and ".join(f"does not pass {how}" for how in wrong), untried)


def _fails_alone(
    short: Path,
    task: MinimisingTask,
    prints: PrintedLine | None,
    seconds_left: Callable[[], float],
) -> bool | None:
    """Return whether a script fails without a repro around it; None if it did not end in time.

    A hang is a run that takes longer than one of the repro, in which the script counts as hanging.
    """
    if task.kind == Kind.HANG and 0.0 < task.run_seconds < seconds_left():
        return verify(short, (), task.run_seconds).late
    ran = verify(short, (), seconds_left())
    if ran.late:
        return None
    if prints is not None and ran.status == PASSES:
        return not is_printed(prints, ran.output)
    return ran.status not in (PASSES, UNRESOLVED)


def _documented(
    report: Report, fault: ReportedFault, short: Path, result: MinimisedScript
) -> Report:
    notes = needs(result)
    small = ReportedScript(
        str(short), result.lines_before, result.lines_after, result.runs, result.seconds,
        result.cpu_seconds,
    )  # fmt: skip
    fault = msgspec.structs.replace(fault, short=str(short), only_fails="")
    return msgspec.structs.replace(
        report, faults=[fault], script=small, notes=[*report.notes, *notes],
        reruns=report.reruns + result.runs,
    )  # fmt: skip


def needs(result: MinimisedScript) -> list[str]:
    """Return notes on what the minimised script needs, and whether it could be smaller."""
    notes = [] if result.ended else ["the time ran out before the script was fully minimised"]
    need = "needs" if result.ended else "may need"
    if result.processes > 1:
        notes.append(
            "the minimised script fails in the second of two processes that share their caches"
        )
    if not result.alone:
        notes.append(
            f"the minimised script {need} other files of the script's folder, which are unchanged"
        )
    if result.args:
        notes.append(f"the minimised script {need} the arguments {' '.join(result.args)}")
    return notes
