"""Writes the repro of a fault in several forms, until one fails by itself in a fresh process."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import ReproWrite
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.judging.check import run_check
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.repros.claims import withdraw_claim
from tcdebug.minifier.repros.verify import (
    FAILS,
    LATE,
    PASSES,
    SECONDS,
    UNRESOLVED,
    Verified,
    verify_switched,
)
from tcdebug.minifier.subjects.subject import ReproFacts, Subject

SET_UP_FUNCTION = "\ndef set_up("
"""Part of the text of a repro that runs the script first."""
NOT_ALONE = "the repro script does not fail by itself: "
"""The beginning of a note on a repro of which no form fails."""
LACKS = "it lacks something that the script sets up"
NOT_REACHED = "the script, which it runs first, does not reach the graph again"
UNREACHED = "undecided: set-up fails"
"""What a repro prints if its set-up ends before the graph."""
RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
OVERDUE = "the budget was used up while the repro ran {}"


@dataclass(frozen=True)
class Reproduction(Generic[CandidateType]):
    """Writes and verifies the repros of an investigation."""

    subject: Subject[CandidateType]
    oracle: Oracle[CandidateType]
    log: EventLog

    def write(self, branch: Branch[CandidateType], path: Path) -> str:
        """Write the repro of a branch, and record in the branch how it ran. Return a note."""
        note = self._written(branch, path)
        if branch.repro is not None and branch.off and not branch.passes:
            withdraw_claim(branch.repro)
        return note

    def _written(self, branch: Branch[CandidateType], path: Path) -> str:
        """Write forms of a repro until one fails by itself, and passes if it must."""
        facts = ReproFacts(
            branch.best, branch.failure, tuple(branch.off), branch.base, branch.nearest_passing,
            self.oracle.passes_needed, self.oracle.limits,
        )  # fmt: skip
        ended = ""
        for written in self.subject.repros(facts, path):
            self.log.emit(ReproWrite(str(path), branch.best.size, written.inputs))
            branch.repro = path
            if self.oracle.spending.seconds_left <= 0:
                return "the repro was not run, because the budget is used up"
            as_is, off = self._verify(branch, path)
            ended = as_is.output
            if as_is.late:
                return OVERDUE.format("unchanged")
            if written.must_pass and branch.off and not branch.passes:
                continue
            if branch.fails:
                self._shorten(branch, facts, path)
                if off is not None and off.late:
                    return OVERDUE.format("with the culprit off")
                if branch.off and not branch.passes:
                    return "the repro still fails with the culprit's unit off"
                return written.note
        return NOT_ALONE + _why_not(path, ended)

    def _shorten(
        self, branch: Branch[CandidateType], facts: ReproFacts[CandidateType], path: Path
    ) -> None:
        """Write the short form of a repro that runs without the script."""
        if SET_UP_FUNCTION in path.read_text() or self.oracle.spending.seconds_left <= 0:
            return
        short = path.with_name(path.name.replace("repro", "short", 1))
        branch.short = self.subject.short_form(facts, short)

    def _verify(
        self, branch: Branch[CandidateType], path: Path
    ) -> tuple[Verified, Verified | None]:
        """Run the repro as it is, with the culprit off, and with only the needed units on.

        Return how the first two ended.
        """
        self.oracle.ask_ahead(())
        seconds = min(SECONDS * 2.5, max(10.0, self.oracle.spending.seconds_left))
        only = [f"only:{unit}" for unit in branch.only]
        as_is, off, alone = verified(
            self.oracle.criteria, path, branch.off, only, self.oracle.others.folder, seconds,
            self.subject.interpreters,
        )  # fmt: skip
        self.log.emit(as_is.event(path))
        path.with_suffix(".log").write_text(as_is.output)
        branch.fails = as_is.reproduced
        branch.passes = as_is.reproduced and off is not None and off.passed
        branch.only_fails = as_is.reproduced and alone is not None and alone.reproduced
        return as_is, off


def _why_not(path: Path, output: str) -> str:
    """Return why a repro did not fail, from its text and its output."""
    if UNREACHED not in output or SET_UP_FUNCTION not in path.read_text():
        return LACKS
    raised = RAISED.findall(output)
    return f"{NOT_REACHED}: {raised[-1]}" if raised else NOT_REACHED


def verified(
    criteria: Criteria,
    path: Path,
    off: list[str],
    only: list[str],
    folder: Path,
    seconds: float,
    interpreters: Interpreters | None,
) -> tuple[Verified, Verified | None, Verified | None]:
    """Run a repro as it is, with units off, and under `only`, with the judge of its failure.

    All runs together may take `seconds`.
    """
    if not criteria.check:
        return verify_switched(path, off, only, seconds, interpreters)

    end = time.monotonic() + seconds

    def judged(toggles: list[str]) -> Verified:
        folder.mkdir(parents=True, exist_ok=True)
        left = min(SECONDS, end - time.monotonic())
        if left <= 0:
            return LATE
        outcome = run_check(criteria.check, path, folder, toggles, left)
        if outcome.kind is Kind.HANG:
            return LATE
        status = {Kind.OK: PASSES, Kind.BAD: FAILS}.get(outcome.kind, UNRESOLVED)
        return Verified(status, outcome.seconds, outcome.message)

    return judged([]), judged(off) if off else None, judged(only) if only else None
