"""A first look at a script: whether it fails where the graphs that Dynamo captures run in eager.

Then no graph has to be compiled. The runs leave nothing behind that a later one could see.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.layer_names import AUTOGRAD, DYNAMO, OPERATORS
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.investigation.script_failure import NONE_ALONE, NONE_JUDGED
from tcdebug.minifier.investigation.script_runs import LEAST, ScriptRuns
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.processes.job import WOULD_CHANGE, Job
from tcdebug.minifier.processes.warm.sessions import WarmSessions

CHECKS_ITSELF = re.compile(r"\b(?:assert|raise|exit|unittest|testing)")
"""What the text of a script contains that may fail by itself."""
FIRST_LOOK, FIRST_PART = 20.0, 0.1
"""A script may take so many seconds, and such a part of the time left, to fail without kernels."""


def fails_without_kernels(
    job: Job,
    log: EventLog,
    left: float,
    say: Callable[[str], None],
    sessions: WarmSessions | None,
) -> bool:
    """Return whether the script passes in eager, and raises where Dynamo's graphs run in eager.

    The runs leave nothing behind that a later one could see: one that would change a file or start
    a program ends, and the answer is False. So it is if they take more than a part of the time that
    is `left`, and if the text of the script has nothing that may fail by itself.
    """
    asked = job.bisect and job.wanted == Criteria() and job.resume is None
    text = Path(job.script).read_text(errors="replace")
    if not (asked and CHECKS_ITSELF.search(text)):
        return False
    seconds, captured = min(FIRST_LOOK, FIRST_PART * left), (AUTOGRAD,)
    runs = ScriptRuns(job, log, LEAST, time.monotonic() + seconds, sessions, harmless=True)
    try:
        ended = dict(runs.ask(((DYNAMO,), captured)))
        right = ended[(DYNAMO,)].kind is Kind.OK
        if not right and OPERATORS in runs.used():  # torch captures functions in eager too
            in_python = (OPERATORS, DYNAMO)
            right = runs.ask((in_python,))[in_python].kind is Kind.OK
    except BudgetUsed:
        return False
    raised = ended[captured].kind is Kind.EXCEPTION
    changes = ended[captured].message == f"exit status {WOULD_CHANGE}"
    if not raised or changes or not right:
        return False
    say("it fails where its graphs run in eager: none is judged alone")
    return True


def not_judged_alone(report: Report) -> Report:
    """Return the report of such a script, with a note that no graph was judged."""
    notes = [NONE_JUDGED if note == NONE_ALONE else note for note in report.notes]
    return msgspec.structs.replace(report, notes=notes)
