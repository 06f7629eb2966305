"""A script none of whose graphs fails alone: run as a whole, and investigated if it fails."""

from __future__ import annotations

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.investigation.reporting import FailureFound
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript, script_oracle


def investigate_script(job: Job, log: EventLog, seconds: float) -> Report:
    """Run the script of a job compiled, and find out why it fails, within so many seconds."""
    script = WholeScript(job.script, tuple(job.args))
    subject = ScriptSubject(job, log)
    oracle = script_oracle(subject, seconds, "script")
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
