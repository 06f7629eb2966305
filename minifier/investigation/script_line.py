"""The statement at which Dynamo goes wrong, in a script that Dynamo makes fail."""

from __future__ import annotations

from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.investigation.whole_script import LONGER
from tcdebug.minifier.oracles.answers import Answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript
from tcdebug.minifier.targets.ladder import AUTOGRAD


def find_line(job: Job, log: EventLog, seconds: float) -> Decision | None:
    """The statement whose capture brings the failure in; None where no single one is confirmed.

    The script is rerun with what Dynamo captures run in eager, up to one statement or another.
    """
    folder = Path(job.run_dir)
    subject = ScriptSubject(job, log)
    oracle = Oracle(
        subject,
        log,
        Answers(folder / "answers-lines.jsonl"),
        Limits(job.limits.seconds * LONGER, job.limits.memory),
        Spending(Budget(seconds, job.reruns)),
        job.wanted,
        OtherFailures(folder / "other" / "lines", log),
    )
    asked = CandidateOracle(oracle, WholeScript(job.script, tuple(job.args)))
    base = Toggles.parse(job.toggles).without(off=[AUTOGRAD])
    try:
        failure = asked.ask(base, "what Dynamo captures, run in eager")
        if not failure.failed or not failure.decisions:
            return None
        oracle.hunted = failure
        verdict = bisect(asked.ask, failure, base, log)
    except BudgetUsed:
        return None
    whole = any(fault.whole_unit for fault in verdict.faults)
    if not verdict.confirmed or whole or len(verdict.faults) != 1:
        return None
    return verdict.decisions()[0]
