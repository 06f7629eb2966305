"""One round after the other of Hypothesis: programs are drawn and judged until one fails anew.

The one that does is shrunk; then the hunt goes on, and takes that failure for known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest import SkipTest

import msgspec
from hypothesis import HealthCheck, Phase, event, given, seed, settings, target
from hypothesis.database import ExampleDatabase, ReadOnlyDatabase

from tcdebug.fuzz.findings import Finding, Findings, covering
from tcdebug.fuzz.job import ROUND
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.program import Program
from tcdebug.strategies.programs import programs

MOST_KEPT = 1000
"""Programs of a database that are judged."""
SHRINKING = 120.0
"""Seconds that shrinking a program may take."""


class Enough(BaseException):
    """The seconds or examples are used up: leave the round, past all that catches Exception."""


class Failing(Exception):
    """A program fails in a way that no finding covers."""


def simplified(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The program without the values that it need not return to fail, and what they are made of.

    Which value a line reads is drawn by its place among the newest, so that a shrinker cannot
    always leave out a line between the two.
    """
    for output in program.outputs:
        smaller = program.without(output)
        if smaller.steps and fails(smaller):
            return simplified(smaller, fails)
    return program


@dataclass(frozen=True)
class Found:
    """A program that fails, as small as Hypothesis could make it."""

    program: Program
    verdict: ProgramVerdict
    examples: int
    seed: int


@dataclass
class _Round:
    """What a round has come to: the signature that is shrunk, and the smallest program so far.

    `findings` are those that there were when the failure was met: while it is shrunk, others may
    find it too, and Hypothesis wants a program to fail each time or never.
    """

    hunted: str = ""
    findings: tuple[Finding, ...] = ()
    smallest: tuple[Program, ProgramVerdict] | None = None
    until: float = 0.0


@dataclass
class Hunt:
    """The rounds of one worker. `told` hears of every program that is judged while drawing."""

    judge: Callable[[Program], ProgramVerdict]
    findings: Findings
    backend: str
    told: Callable[[Program, ProgramVerdict], None]
    database: ExampleDatabase | None
    units: Sequence[str] = ()
    """What is switched off now and then."""
    examples: int | None = None
    seconds: float | None = None
    judged: int = 0
    _known: dict[str, ProgramVerdict] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def round(self, start: int) -> Found | None:
        """The programs of one seed; the first failure that is new ends it. Raises Enough."""
        phases = (Phase.generate, Phase.target, Phase.shrink)
        return self._round(start, ROUND, self.database, phases)

    def kept(self) -> Found | None:
        """The programs that the database has, of this machine or another one; as `round`.

        They stay in it: what is known here is new to others.
        """
        if self.database is None:
            return None
        database = ReadOnlyDatabase(self.database)
        return self._round(0, MOST_KEPT, database, (Phase.reuse, Phase.shrink))

    def _round(
        self, start: int, count: int, database: ExampleDatabase | None, phases: Sequence[Phase]
    ) -> Found | None:
        state = _Round()

        @settings(  # outermost, for `seed` takes the database away
            max_examples=count, database=database, deadline=None, phases=phases,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False,
        )  # fmt: skip
        @seed(start)
        @given(programs(units=tuple(self.units)))
        def attempt(program: Program) -> None:
            self._attempt(program, state)

        try:
            attempt()
        except SkipTest:  # as Hypothesis says that the database has nothing
            return None
        except Failing:
            assert state.smallest is not None
            program, verdict = state.smallest

            def fails(smaller: Program) -> bool:
                return self._verdict(smaller, state).signature == verdict.signature

            return Found(simplified(program, fails), verdict, self.judged, start)
        return None

    def _attempt(self, program: Program, state: _Round) -> None:
        verdict = self._verdict(program, state)
        for op in {*program.ops}:
            event(op)
        target(float(len(program.pairs)), label="pairs of operations")
        target(float(len(verdict.fused)), label="pairs in one kernel")
        if verdict.status is not Status.FAILED or state.hunted not in ("", verdict.signature):
            return
        state.hunted = verdict.signature
        state.smallest = (program, verdict)
        raise Failing(verdict.signature)

    def _verdict(self, program: Program, state: _Round) -> ProgramVerdict:
        """The verdict; a failure that a finding covers is known. No program is judged twice."""
        known = self._known.get(program.key)
        if known is not None:
            return self._covered(program, known, state)  # there may be a finding of it since
        if state.hunted:
            if time.monotonic() > state.until:
                return ProgramVerdict(Status.DISCARDED, message="no more time to shrink")
            verdict = self._covered(program, self.judge(program), state)
        else:
            self._afford()
            self.judged += 1
            verdict = self._covered(program, self.judge(program), state)
            self.told(program, verdict)
            state.until = time.monotonic() + SHRINKING
        self._known[program.key] = verdict
        return verdict

    def _covered(self, program: Program, verdict: ProgramVerdict, state: _Round) -> ProgramVerdict:
        if verdict.status is not Status.FAILED:
            return verdict
        if not state.hunted:
            state.findings = tuple(self.findings)
        if covering(state.findings, self.backend, verdict.signature, program.ops) is None:
            return verdict
        return msgspec.structs.replace(verdict, status=Status.KNOWN)

    def _afford(self) -> None:
        if self.examples is not None and self.judged >= self.examples:
            raise Enough
        if self.seconds is not None and time.monotonic() - self._began > self.seconds:
            raise Enough
