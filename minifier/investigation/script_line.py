"""Finds the statement at which Dynamo goes wrong in a script that it makes fail, and the call."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Verdict, bisect
from tcdebug.minifier.cases.layer_names import AUTOGRAD
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.user_frames import folders_of_torch
from tcdebug.minifier.oracles.budget import BudgetUsed
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.warm.sessions import WarmSessions
from tcdebug.minifier.subjects.script import ScriptSubject, WholeScript, script_oracle
from tcdebug.minifier.trace.statements import (
    StatementBlock,
    block_at,
    block_opened_by,
    hides_statements,
    reads_after,
)

FRAME = "dynamo.frame."
CALL = "dynamo.call"
OF_DYNAMO = "_dynamo.exc."
"""The end of the module of Dynamo's exceptions, as a signature has it."""
OF_ITS_OWN = os.path.join("torch", "_dynamo", "")
"""The folder of the functions that Dynamo puts around those of the program."""
MANY_CALLS = 100_000
"""A limit that no frame exceeds. With it, Dynamo asks about every call."""
DEEPEST = 3
"""The limit on functions of torch between torch.compile and the user's function."""
INNERMOST = 4
"""The limit on functions between the one that torch.compile was given and the one at fault."""


ASKS = re.compile(r"\bis(?:_dynamo)?_(?:compiling|exporting)\(")
"""The call with which a program asks whether it is being compiled."""
OWN_PATH = (
    "the program asks there whether it is being compiled. What it does in that case may be at "
    "fault, rather than Dynamo"
)


@dataclass(frozen=True)
class SuspectPlace:
    """A place in the script whose capture makes it fail: a function, a statement or a call."""

    decision: Decision
    others: bool = False
    """Whether later statements of other functions fail in the same way."""
    block: StatementBlock | None = None
    """The block that it stands for, if no statement or call inside is known to be at fault."""

    @property
    def unit(self) -> str:
        """The unit of the decision."""
        return self.decision.unit

    @property
    def subject(self) -> str:
        """The file, the line, and the source text."""
        return self.decision.subject


def find_line(
    job: Job,
    log: EventLog,
    seconds: float,
    sessions: WarmSessions | None = None,
    longest: float = math.inf,
    off: Sequence[str] = (),
) -> tuple[SuspectPlace, ...]:
    """Return the statement whose capture causes the failure; empty if no single one is confirmed.

    If a call or comparison in the statement is confirmed too, it follows. A statement of torch is
    returned only if no statement of the script is confirmed, and one of Dynamo itself never. If
    Dynamo raises before it has captured any statement of a function, or several of its statements
    fail, that function is returned. If statements of several functions fail, the first one is.

    The script is rerun with captured code running in eager, and with capture cut off after various
    statements. A run of the script takes `longest` seconds at most, without the layers in `off`.
    """
    oracle = script_oracle(ScriptSubject(job, log, sessions=sessions), seconds, "lines", longest)
    asked = CandidateOracle(oracle, WholeScript(job.script, tuple(job.args)))
    base = Toggles.parse(job.toggles).without(off=[AUTOGRAD, *off])
    try:
        failure = asked.ask(base, "captured code, run in eager")
        if not failure.failed or not failure.decisions:
            return ()
        oracle.failure = failure
        base, failure = _inside_torch(asked, base, failure)
        verdict = bisect(asked.ask, failure, base, log)
        found = _single(verdict)
        if found is None:
            return _several(asked, base, failure, verdict)
    except BudgetUsed:
        return ()
    base, failure, found = _innermost(asked, base, failure, found, log)
    if _is_of_torch(found.subject):
        return () if OF_ITS_OWN in found.subject else (SuspectPlace(found),)
    call = _call_in(asked, base, failure, found, log)
    if call is not None:
        return SuspectPlace(found), call
    return (SuspectPlace(found, block=block_at(found.subject.partition("  (")[0])),)


def _several(
    asked: CandidateOracle[WholeScript], base: Toggles, failure: Outcome, verdict: Verdict
) -> tuple[SuspectPlace, ...]:
    """Return the function without whose capture the script passes, if no statement is to blame.

    It is the one at whose beginning Dynamo raises, or the one that a statement belongs to. If the
    script passes only without the statements of other functions too, return the first statement.
    """
    last, first = failure.decisions[-1], next(iter(verdict.decisions()), None)
    raised = failure.kind is Kind.EXCEPTION and OF_DYNAMO in failure.signature
    if raised and last.allowed and last.unit.startswith(FRAME):
        frame: Decision | None = last
    else:
        frame = _frame_of(first, failure) if first else None
    if frame is None or _is_of_torch(frame.subject):
        return ()
    without = asked.ask(base.without(sites=[frame.site]), "without the function at fault")
    if without.kind is Kind.OK:
        return (SuspectPlace(frame),)
    if first is None or not verdict.confirmed or not failure.same_bug(without):
        return ()
    return () if _is_of_torch(first.subject) else (SuspectPlace(first, others=True),)


def _call_in(
    asked: CandidateOracle[WholeScript],
    base: Toggles,
    failure: Outcome,
    statement: Decision,
    log: EventLog,
) -> SuspectPlace | None:
    """Return the call in the statement at fault whose capture causes the failure, if one does.

    None if the script fails differently where capture ends at a call. If the statement reads a
    variable or an attribute after the call, before any other call, that may be at fault as well,
    and so may a statement between the two. If the call opens a block inside which Dynamo cannot
    end the capture, the block stands for it.
    """
    calls = base.limited(CALL, MANY_CALLS)
    try:
        outcome = asked.ask(calls, "captured code, asked about every call")
        found = _statement(asked, calls, outcome, log) if failure.same_bug(outcome) else None
    except BudgetUsed:
        return None
    if found is None or found.unit != CALL:
        return None
    later = [d for d in outcome.decisions if d.ordinal > found.ordinal]
    following = next((d.subject.partition("  (")[0] for d in later), "")
    if block := block_opened_by(found.subject, following):
        return SuspectPlace(found, block=block)
    next_call = next((d.subject for d in later if d.unit == CALL), "")
    if reads_after(found.subject, next_call):
        return None
    whole = statement.subject.partition("  (")[0]
    return None if hides_statements(found.subject, following, whole) else SuspectPlace(found)


def _statement(
    asked: CandidateOracle[WholeScript], base: Toggles, failure: Outcome, log: EventLog
) -> Decision | None:
    """Return the one statement without whose capture the script passes, if there is one."""
    return _single(bisect(asked.ask, failure, base, log))


def _single(verdict: Verdict) -> Decision | None:
    """Return the statement of a verdict if it is the only one at fault."""
    whole = any(fault.whole_unit for fault in verdict.faults)
    if not verdict.confirmed or whole or len(verdict.faults) != 1:
        return None
    return verdict.decisions()[0]


def _innermost(
    asked: CandidateOracle[WholeScript],
    base: Toggles,
    failure: Outcome,
    found: Decision,
    log: EventLog,
) -> tuple[Toggles, Outcome, Decision]:
    """Return the statement at fault in a function that the found one calls, or the found one.

    It comes with the toggles under which it was found, and how the script fails then. Dynamo
    inlines that function. With the calling function in eager, it is captured by itself. Statements
    of torch are passed through, such as those of Sequential.
    """
    reached, around = found, (base, failure)
    for _ in range(INNERMOST):
        frame = _frame_of(reached, failure)
        if frame is None:
            break
        base = base.without(sites=[frame.site])
        try:
            outcome = asked.ask(base, "what the statement calls, captured by itself")
            if not failure.same_bug(outcome):
                break
            inner = _statement(asked, base, outcome, log)
        except BudgetUsed:
            break
        if inner is None:
            break
        reached, failure = inner, outcome
        if not _is_of_torch(inner.subject):
            found, around = inner, (base, outcome)
    return (*around, found)


def _frame_of(statement: Decision, failure: Outcome) -> Decision | None:
    """Return the decision on the frame that a statement belongs to, which was asked before it."""
    frames = [
        d for d in failure.decisions if d.unit.startswith(FRAME) and d.ordinal < statement.ordinal
    ]
    return frames[-1] if frames else None


def _inside_torch(
    asked: CandidateOracle[WholeScript], base: Toggles, failure: Outcome
) -> tuple[Toggles, Outcome]:
    """Let torch's own functions run in eager, such as those of torch.func, if it then fails too.

    Dynamo inlines what they call, and a statement of torch would be named. In eager they call the
    user's function, which Dynamo then captures by itself. Return the toggles and how it fails.
    """
    for _ in range(DEEPEST):
        captured = [
            d.site
            for d in failure.decisions
            if d.allowed and d.unit.startswith(FRAME) and _is_of_torch(d.subject)
        ]
        if not captured:
            break
        inside = base.without(sites=captured)
        outcome = asked.ask(inside, "what torch's own functions call, captured by itself")
        if not failure.same_bug(outcome) or not outcome.decisions:
            break
        base, failure = inside, outcome
    return base, failure


def _is_of_torch(place: str) -> bool:
    """Return whether a place, which begins with FILE:N, is in a file of torch."""
    return os.path.abspath(place).startswith(folders_of_torch())


def lines_at_fault(places: Sequence[SuspectPlace]) -> list[str]:
    """Return the line of the innermost place that alone is at fault, as `FILE:N: source`."""
    if not places or places[-1].others:
        return []
    if places[-1].block is not None:
        return [str(places[-1].block)]
    return [places[-1].subject.partition("  (")[0]]


def notes_on(places: Sequence[SuspectPlace]) -> list[str]:
    """Return the notes of a report on what `find_line` found."""
    asks = any(ASKS.search(place.subject) for place in places)
    return [*map(described, places), *[OWN_PATH] * asks]


def described(place: SuspectPlace) -> str:
    """Say what is known about a place that `find_line` returned."""
    if place.unit.startswith(FRAME):
        return (
            f"it fails if Dynamo captures this function, and passes if it does not "
            f"({place.unit}): {place.subject}"
        )
    if place.block is not None and place.unit == CALL:
        return (
            "it passes if the capture ends before this block is opened, and fails if it goes on "
            f"from there; Dynamo cannot continue in eager inside the block ({place.unit}): "
            f"{place.block}"
        )
    if place.block is not None:
        return (
            "it fails if Dynamo captures this block, and passes if the capture ends before it; "
            f"no single statement or call inside was found ({place.unit}): {place.block}"
        )
    if place.unit == CALL:  # what follows, such as the end of a loop, belongs to no other call
        return (
            f"it passes if the capture ends before this call, and fails if it goes on from there "
            f"({place.unit}): {place.subject}"
        )
    if place.others:
        return (
            "it fails if Dynamo captures this statement, and passes if Dynamo captures neither "
            f"this nor a later one; other functions fail in the same way ({place.unit}): "
            f"{place.subject}"
        )
    what = "statement of torch" if _is_of_torch(place.subject) else "statement"
    return (
        f"it fails if Dynamo captures this {what}, and passes if the capture ends before it "
        f"({place.unit}): {place.subject}"
    )
