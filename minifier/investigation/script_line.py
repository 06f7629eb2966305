"""Finds the statement at which Dynamo goes wrong in a script that Dynamo makes fail."""

from __future__ import annotations

import math

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.cases.layer_names import AUTOGRAD
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript, script_oracle


def find_line(
    job: Job,
    log: EventLog,
    seconds: float,
    sessions: WarmSessions | None = None,
    longest: float = math.inf,
) -> Decision | None:
    """Return the statement whose capture causes the failure; None if no single one is confirmed.

    The script is rerun with captured code running in eager, and with capture cut off after various
    statements. A run of the script takes `longest` seconds at most.
    """
    oracle = script_oracle(ScriptSubject(job, log, sessions=sessions), seconds, "lines", longest)
    asked = CandidateOracle(oracle, WholeScript(job.script, tuple(job.args)))
    base = Toggles.parse(job.toggles).without(off=[AUTOGRAD])
    try:
        failure = asked.ask(base, "captured code, run in eager")
        if not failure.failed or not failure.decisions:
            return None
        oracle.failure = failure
        verdict = bisect(asked.ask, failure, base, log)
    except BudgetUsed:
        return None
    whole = any(fault.whole_unit for fault in verdict.faults)
    if not verdict.confirmed or whole or len(verdict.faults) != 1:
        return None
    return verdict.decisions()[0]
