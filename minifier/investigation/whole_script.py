"""Runs a script as a whole if none of its graphs fails alone, and investigates it if it fails."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.autograd_units import ALONE
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.criteria import PrintedLine
from tcdebug.minifier.cases.layer_names import (
    AUTOGRAD,
    CACHE,
    CAPTURE,
    COMPILED_AUTOGRAD,
    DECOMPOSITIONS,
    DYNAMO,
    DYNAMO_CODE,
    OWN_BRANCHES,
    OWN_RANDOM,
    OWN_TIMES,
    PROGRAM_PASSES,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.findings import FailureFindings, FailureFound
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import Report, ReportedFailure, culprit_units
from tcdebug.minifier.investigation.reproduction import NOT_ALONE
from tcdebug.minifier.investigation.script_failure import (
    NONE_ALONE,
    ScriptFailure,
)
from tcdebug.minifier.investigation.script_layers import LayerSearch
from tcdebug.minifier.investigation.script_runs import LEAST, ScriptRuns
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.processes.callers import ASKS
from tcdebug.minifier.processes.job import INDUCTOR_SETUP, SCRIPT_FAILED, Job
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.repros.script_repro import write_repro
from tcdebug.minifier.repros.verify import run_both_ways
from tcdebug.minifier.subjects.layer_texts import Off
from tcdebug.minifier.subjects.printed import (
    PrintedDifference,
    is_printed,
    line_to_print,
    printed_differences,
)
from tcdebug.minifier.subjects.script import LONGER, ScriptSubject, WholeScript, script_oracle

FAILS_WITHOUT_TCDEBUG = (
    "it fails only without tcdebug in its process, which imports torch and its compiler before "
    "the script. No layer was searched for"
)
SCRIPT_SHOWS = (
    "the repro runs the whole script: the graph alone lacks something that the script sets up"
)
HUNG = Outcome(Kind.HANG, "script", "script | hang", "it did not end while it was recorded")
"""How a script ended with the backend eager if a capture did not end while it was recorded."""
MENTIONED = {
    COMPILED_AUTOGRAD: re.compile("compiled_autograd"),
    OWN_BRANCHES: ASKS,
    OWN_TIMES: re.compile(
        r"\b(?:perf_counter|monotonic|process_time|timeit|default_timer|time\.time|benchmark|Timer|"
        r"elapsed|timeout|alarm|setitimer|wait_for)"
    ),
}
"""A layer that a script uses only if its text contains a name."""
STARTS = re.compile(r"\b(?:subprocess|multiprocessing|os\.system|popen|spawn|ProcessPool\w*)\b")
"""What a script mentions that starts processes which compile with the same caches."""
SIDE_BY_SIDE = re.compile(rf"{STARTS.pattern}|\b(?:Thread\w*|threading|num_workers|fork)\b")
"""What a script mentions whose lines may come in any order, because several of it run at once."""
OBSERVES = re.compile(
    r"saved_tensors_hooks|_dispatch__|next_functions|data_ptr|_version\b|tracemalloc|getrefcount|"
    r"weakref|memory_allocated|profile"
)
"""What a script mentions that looks at how its operators run, not only at what they return."""
PRINTED = "it prints {}, although it ends in the same way"
"""A note on a healthy script that prints something else in eager."""
MOST_TRIED = 20
"""The limit on lines that are tried as the one that tells a wrong run from a right one."""
MAY_DIFFER = (
    "with the backend eager it prints that line too. AOTAutograd and a backend may rightly run "
    "other operators, save other tensors, and call hooks less often: whether this is a fault is "
    "unknown"
)
"""A note on a line that need not be the same when a graph is compiled."""
IF_IT_RAISED = "if it raises where these differ, the cause can be bisected"


@dataclass(frozen=True)
class Passed:
    """A script that passes as it is, with the file of what it printed."""

    output: Path


@dataclass(frozen=True)
class PrintedInEager:
    """What a script that passes prints in eager only.

    `line` is None if no layer need be at fault. The line may be a measurement. It may differ when
    Dynamo captures the functions and eager runs them, as a count of graphs does. Or it may be right
    with the backend aot_eager, and wrong without caches: a compiler draws random numbers and rounds
    in its own way.
    """

    difference: PrintedDifference
    line: PrintedLine | None
    drawn: bool = False
    """Whether the line is right if inductor draws the random numbers of eager."""
    may_differ: bool = False
    """Whether it may be a count of what AOTAutograd and a backend rightly do otherwise."""


def passes_without(
    job: Job,
    log: EventLog,
    seconds: float,
    units: Sequence[str],
    sessions: WarmSessions | None = None,
) -> bool:
    """Return whether the script of a job passes with these units off, within `seconds`."""
    oracle = script_oracle(ScriptSubject(job, log, sessions=sessions), seconds, "script")
    toggles = Toggles.parse([*job.toggles, *units])
    script = WholeScript(job.script, tuple(job.args))
    try:
        return oracle.ask(script, toggles, "the whole script").kind is Kind.OK
    except BudgetUsed:
        return False


def investigate_script(
    job: Job,
    log: EventLog,
    seconds: float,
    layer: LayerFinding | None = None,
    seen: Sequence[Outcome] = (),
    alone: Sequence[Outcome] = (),
    sessions: WarmSessions | None = None,
    reserved: float = 0.0,
    longest: float = math.inf,
) -> Report:
    """Run the script of a job compiled, and investigate a failure, for at most `seconds`.

    If `layer` is known to be at fault, only its units are searched. `seen` is how the script failed
    before, and `alone` how it failed with AOTAutograd and nothing after it. Such runs need not be
    repeated to know that it fails every time. `reserved` seconds are kept unless a unit is named.
    A run takes `longest` seconds at most.
    """
    subject = ScriptSubject(job, log, layer, sessions=sessions)
    script = WholeScript(job.script, tuple(job.args))
    oracle = script_oracle(subject, seconds, "script", longest)
    oracle.spending.reserved = reserved
    base = Toggles.parse(job.toggles)
    try:
        failure = oracle.ask(script, base, "the whole script")
    except BudgetUsed:
        return Report("budget", run_dir=job.run_dir, notes=["the script was not run as a whole"])
    if not failure.failed:
        return Report("no_failure", run_dir=job.run_dir)
    oracle.count_failures(script, base, sum(failure.same_bug(outcome) for outcome in seen))
    if layer is not None:
        _count_alone(oracle, script, base, failure, alone)
        failure = replace(failure, decisions=())
    oracle.failure = failure
    investigation = Investigation(
        FailureFindings(FailureFound(script, failure), base), subject, oracle, log,
        job.bisect, False, job.confidence,
    )  # fmt: skip
    report = investigation.run()
    return msgspec.structs.replace(report, notes=[*report.notes, NONE_ALONE])


def _count_alone(
    oracle: Oracle[WholeScript],
    script: WholeScript,
    base: Toggles,
    failure: Outcome,
    alone: Sequence[Outcome],
) -> None:
    """Run the script with AOTAutograd alone, and count the earlier such runs."""
    toggles = base.without(off=[DECOMPOSITIONS])
    with contextlib.suppress(BudgetUsed):
        if failure.same_bug(oracle.ask(script, toggles, ALONE)):
            agreeing = sum(failure.same_bug(outcome) for outcome in alone)
            oracle.count_failures(script, toggles, agreeing)


def _plain_report(job: Job, failure: Outcome, output: Path) -> Report:
    """Report a script that fails only without tcdebug in its process."""
    shown = ReportedFailure(failure.kind.value, failure.signature, "script", failure.message[:2000])
    notes = [FAILS_WITHOUT_TCDEBUG, f"the output is in {output}"]
    return Report("unconfirmed", shown, run_dir=job.run_dir, notes=notes)


def judge_script(
    job: Job,
    log: EventLog,
    seconds: float,
    say: Callable[[str], None],
    recorded: int = 0,
    *,
    endless: str = "",
    sessions: WarmSessions | None = None,
) -> ScriptFailure | Report | Passed:
    """Run the script as it is and, if it fails, find the layer at fault.

    If it fails only without tcdebug in its process, this is reported at once. `recorded` is the
    exit status of the session that recorded its graphs. `endless` is a capture, or the unit of a
    gated pass, that did not end; the time of a run without it then limits the others. Each run has
    its own empty caches, and is forked by `sessions` if it is given, except where a claim needs a
    fresh process. Raises BudgetUsed if the script neither passes nor fails within `seconds`.
    """
    deadline = time.monotonic() + seconds
    longest = max(job.limits.seconds * LONGER, LEAST)  # `--timeout` is for a graph, not a start
    runs = ScriptRuns(job, log, longest, deadline, sessions, bool(endless))
    known: dict[Off, Outcome] = {}
    if endless:
        say("running the script in eager, and then as it is")
        if endless.partition(".")[0] == PROGRAM_PASSES:
            known |= runs.limiting((PROGRAM_PASSES,))
        known |= runs.limiting((DYNAMO,))
        if endless == CAPTURE:  # no backend compiled anything while the graphs were recorded
            known[(AUTOGRAD,)] = HUNG
    else:
        say("running the script as it is")
    if sessions is not None:
        sessions.call(INDUCTOR_SETUP)
    failure = runs.as_it_is()
    if runs.plain_failure is not None:
        return _plain_report(job, runs.plain_failure, runs.plain_output)
    if not failure.failed:
        return Passed(runs.logs[()])
    say("it fails; looking for the layer at fault")
    search = LayerSearch(
        runs.ask,
        failure,
        {**known, (): failure},
        lambda: runs.used() | _mentioned(job),
        bool(endless),
        runs.raised_alike,
        runs.wrapped_alike,
        runs.may_count_compiles,
        runs.ended_alike,
        lambda: runs.processes > 1 or STARTS.search(_text(job)) is not None,
        recorded == SCRIPT_FAILED,
    )
    try:
        failed = ScriptFailure(job, failure, search.find(), runs, search)
        if runs.sessions is None or failed.holds_in_fresh_processes():
            return failed
    except BudgetUsed:
        return ScriptFailure(job, failure, search.so_far(), runs, search, in_budget=False)
    log.emit(failed.why_in_fresh_processes)
    return judge_script(job, log, deadline - time.monotonic(), say, recorded, endless=endless)


def shown_by_script(
    job: Job, log: EventLog, seconds: float, report: Report, sessions: WarmSessions | None
) -> Report | None:
    """Confirm the units that a report of a graph suspects, if only a repro of the graph is missing.

    The repro is the script instead. It must fail as it is and pass without these units, in forks
    and in fresh processes. None if it does not, or the budget ends.
    """
    off, path = tuple(culprit_units(report)), Path(job.run_dir) / "repro.py"
    missing = any(note.startswith(NOT_ALONE) for note in report.notes)
    if not missing or not off or len(report.faults) != 1 or report.layer:
        return None
    runs = ScriptRuns(job, log, LEAST, time.monotonic() + seconds, sessions)
    try:
        ended = runs.ask(((), off))
    except BudgetUsed:
        return None
    if not ended[()].failed or ended[off].kind is not Kind.OK:
        return None
    write_repro(job, ended[()], off, path)
    with run_both_ways(path, off, runs.deadline - time.monotonic(), 1) as ending:
        (failing, _), (passing, _) = ending()
    log.emit(failing.event(path))
    if not failing.reproduced or passing is None or not passing.passed:
        return None
    (fault,), command = report.faults, f"python {path.name}"
    shown = msgspec.structs.replace(
        fault, confirmed=True, repro=str(path), short=None, fails=command, only_fails="",
        passes=" ".join([command, *(f"--off={unit}" for unit in off)]),
    )  # fmt: skip
    notes = [SCRIPT_SHOWS if note.startswith(NOT_ALONE) else note for note in report.notes]
    return msgspec.structs.replace(
        report, status="confirmed", confirmed=True, faults=[shown], repro=str(path), notes=notes
    )


def _mentioned(job: Job) -> frozenset[str]:
    """Return the layers that a script uses only if its text mentions them."""
    text = _text(job)
    return frozenset(layer for layer, name in MENTIONED.items() if name.search(text))


def _text(job: Job) -> str:
    return Path(job.script).read_text(errors="replace")


def printed_in_eager(
    job: Job, log: EventLog, seconds: float, passed: Passed, sessions: WarmSessions | None
) -> PrintedInEager | None:
    """Return what a script that passes prints in eager only, unless that changes at random."""
    compiled = passed.output.read_text(errors="replace")
    if not compiled.strip():
        return None
    runs = ScriptRuns(job, log, LEAST, time.monotonic() + seconds, sessions)
    try:
        eager = _output(runs, (DYNAMO,))
        ordered = SIDE_BY_SIDE.search(_text(job)) is None
        if eager is None or not printed_differences(eager, compiled, compiled, ordered=ordered):
            return None
        again = _output(runs, ())
        if again is None:
            return None
        if not (found := printed_differences(eager, compiled, again, ordered=ordered)):
            return None
        return _reason(runs, eager, found, (compiled, again))
    except BudgetUsed:
        return None


def _reason(
    runs: ScriptRuns, eager: str, found: Sequence[PrintedDifference], compiled: Sequence[str]
) -> PrintedInEager:
    """Return the first line for which a layer must be at fault, if there is one.

    Raises BudgetUsed.
    """
    captured, alone = _output(runs, (DYNAMO_CODE,)), _output(runs, (DECOMPOSITIONS,))
    if captured is None or alone is None:
        return PrintedInEager(found[0], None)
    lines = [(d, line_to_print(d.wanted, eager)) for d in found[:MOST_TRIED]]
    told = [(d, line) for d, line in lines if line and _tells(line, captured, compiled)]
    if not told:
        return PrintedInEager(found[0], None)
    sure = _certain(runs, told)
    for difference, line in sure:
        if not is_printed(line, alone):
            return PrintedInEager(difference, line)
    uncached, drawn = _output(runs, (CACHE,)) or "", _output(runs, (OWN_RANDOM,)) or ""
    for difference, line in told:
        if is_printed(line, uncached):
            return PrintedInEager(difference, line)
    difference, line = (sure or told)[0]
    return PrintedInEager(difference, None, is_printed(line, drawn), not sure)


def _certain(
    runs: ScriptRuns, told: Sequence[tuple[PrintedDifference, PrintedLine]]
) -> list[tuple[PrintedDifference, PrintedLine]]:
    """Return the lines that are no counts, or are wrong where AOTAutograd traces nothing either.

    What Dynamo leaves out of a program, such as a call of a hook, is a fault. Raises BudgetUsed.
    """
    observes = OBSERVES.search(_text(runs.job)) is not None
    if not (observes or any(difference.counts for difference, _ in told)):
        return list(told)
    traced = _output(runs, (AUTOGRAD,)) or ""
    return [
        (difference, line)
        for difference, line in told
        if not (observes or difference.counts) or not is_printed(line, traced)
    ]


def _tells(line: PrintedLine, captured: str, compiled: Sequence[str]) -> bool:
    """Return whether a line is printed where eager runs what Dynamo captures, and not compiled."""
    return is_printed(line, captured) and not any(is_printed(line, text) for text in compiled)


def _output(runs: ScriptRuns, off: Off) -> str | None:
    """Return what a script prints without some layers; None if it fails. Raises BudgetUsed."""
    ended = runs.ask((off,))[off]
    return runs.logs[off].read_text(errors="replace") if ended.kind is Kind.OK else None
