"""Runs a script as a whole if none of its graphs fails alone, and investigates it if it fails."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.autograd_units import ALONE
from tcdebug.minifier.bisection.layers import LayerFinding
from tcdebug.minifier.cases.layer_names import DECOMPOSITIONS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.findings import FailureFindings, FailureFound
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript, script_oracle


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
) -> Report:
    """Run the script of a job compiled, and investigate a failure, for at most `seconds`.

    If `layer` is known to be at fault, only its units are searched. `seen` is how the script failed
    before, and `alone` how it failed with AOTAutograd and nothing after it. Such runs need not be
    repeated to know that it fails every time. `reserved` seconds are kept unless a unit is named.
    """
    subject = ScriptSubject(job, log, layer, sessions=sessions)
    script = WholeScript(job.script, tuple(job.args))
    oracle = script_oracle(subject, seconds, "script")
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
    note = "the script fails as a whole, but none of its graphs fails alone"
    return msgspec.structs.replace(report, notes=[*report.notes, note])


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
