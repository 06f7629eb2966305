"""A script none of whose graphs fails alone: run as a whole, and investigated if it fails."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.investigation.reporting import FailureFound
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript

LONGER = 3.0
"""A script may take so many times the seconds that the first run of a graph may."""


def investigate_script(job: Job, log: EventLog, seconds: float) -> Report:
    """Run the script of a job compiled, and find out why it fails, within so many seconds."""
    folder = Path(job.run_dir)
    script = WholeScript(job.script, tuple(job.args))
    subject = ScriptSubject(job, log)
    oracle = Oracle(
        subject,
        log,
        Answers(folder / "answers-script.jsonl"),
        Limits(job.limits.seconds * LONGER, job.limits.memory),
        Spending(Budget(seconds, job.reruns)),
        job.wanted,
        OtherFailures(folder / "other" / "script", log),
    )
    base = Toggles.parse(job.toggles)
    try:
        failure = oracle.ask(script, base, "the whole script")
    except BudgetUsed:
        return Report("budget", run_dir=job.run_dir, notes=["the script was not run as a whole"])
    if not failure.failed:
        return Report("no_failure", run_dir=job.run_dir)
    oracle.hunted = failure
    investigation = Investigation(
        FailureFound(script, failure), subject, oracle, log, base,
        job.bisect, False, job.confidence,
    )  # fmt: skip
    report = investigation.run()
    note = "the script fails as a whole, none of its graphs alone"
    return msgspec.structs.replace(report, notes=[*report.notes, note])
