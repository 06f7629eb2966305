"""Runs rounds of Hypothesis. A round generates and judges programs until one has a new failure.

That program is shrunk. The hunt then continues and treats its failure as known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest import SkipTest

import msgspec
from hypothesis import HealthCheck, Phase, event, given, seed, settings
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase, ReadOnlyDatabase
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from tcdebug.fuzz.findings import Finding, Findings, covering
from tcdebug.fuzz.job import ROUND
from tcdebug.fuzz.runner import Enough
from tcdebug.fuzz.verdict import ProgramVerdict, Status
from tcdebug.strategies.devices import ON_CPU, Device, Options
from tcdebug.strategies.kinds import AnyProgram, ProgramKind
from tcdebug.strategies.programs import programs
from tcdebug.strategies.python.python_programs import python_programs
from tcdebug.strategies.python.ways import DRAWN, OF_BACKEND

MOST_KEPT = 1000
"""Maximum number of programs of a database that are judged."""
SHRINKING = 120.0
"""Time limit for shrinking a program, in seconds."""
INDEPENDENT = "tcdebug-independent"


class LateShrinking(BaseException):
    """The time for shrinking is used up. Leaves the round as `Enough` does.

    Hypothesis would go on to draw programs, which takes time even if none is judged.
    """


class Failing(Exception):
    """A program fails in a way that no finding covers."""


def independent_draws() -> str:
    """Return the name of a backend of Hypothesis that draws each program independently.

    By default, Hypothesis copies parts of a valid example over other parts of it, up to five times,
    before it draws the next one. Few of such programs have something new.
    """
    provider = f"{HypothesisProvider.__module__}.{HypothesisProvider.__qualname__}"
    AVAILABLE_PROVIDERS.setdefault(INDEPENDENT, provider)
    return INDEPENDENT


def simplified(program: AnyProgram, fails: Callable[[AnyProgram], bool]) -> AnyProgram:
    """Return the program without the parts that the failure does not need.

    A line reads one of the newest values, chosen by its position. A shrinker can therefore not
    always remove a line between the two.
    """
    for smaller in program.smaller():
        if fails(smaller):
            return simplified(smaller, fails)
    return program


@dataclass(frozen=True)
class Found:
    """A program that fails, as small as Hypothesis could make it."""

    program: AnyProgram
    verdict: ProgramVerdict
    examples: int
    seed: int


@dataclass
class _Round:
    """The state of a round: the signature that is being shrunk, and the smallest program so far.

    `findings` are those known when the failure was found. Other workers may find the same one
    during shrinking, and Hypothesis requires that a program fails always or never.
    """

    hunted: str = ""
    findings: tuple[Finding, ...] = ()
    smallest: tuple[AnyProgram, ProgramVerdict] | None = None
    until: float = 0.0


@dataclass
class Hunt:
    """The rounds of one worker. `on_verdict` is called unless a program is being shrunk."""

    judge: Callable[[AnyProgram], ProgramVerdict]
    findings: Findings
    backend: str
    on_verdict: Callable[[AnyProgram, ProgramVerdict], None]
    database: ExampleDatabase | None
    units: Sequence[str] = ()
    """Units that are switched off in some programs."""
    examples: int | None = None
    until: float | None = None
    """The time at which all must be done."""
    reserve: float = 0.0
    """The seconds before `until` that are left for judging a failure in a fresh process."""
    device: Device = ON_CPU
    options: Sequence[Options] = ()
    """Options that some programs are compiled with."""
    kind: ProgramKind = ProgramKind.GRAPHS
    judged: int = 0
    _known: dict[str, ProgramVerdict] = field(default_factory=dict)
    _hunted: set[str] = field(default_factory=set)
    """Programs whose failure was shrunk. A finding need not cover what it was shrunk from."""

    def round(self, start: int) -> Found | None:
        """Judge the programs of one seed, up to the first new failure. Raises Enough.

        If there was one, the round goes on when it is called again with the same seed: what was
        judged is known. Which programs are judged therefore does not depend on what is known.
        """
        return self._round(start, ROUND, self.database, (Phase.generate, Phase.shrink))

    def kept(self) -> Found | None:
        """Judge the programs in the database, of this machine or another one; otherwise as `round`.

        The programs stay in the database, since a failure known here may be new to others.
        """
        if self.database is None:
            return None
        database = ReadOnlyDatabase(self.database)
        return self._round(0, MOST_KEPT, database, (Phase.reuse, Phase.shrink))

    def _round(
        self, start: int, count: int, database: ExampleDatabase | None, phases: Sequence[Phase]
    ) -> Found | None:
        state = _Round()

        @settings(  # outermost, because `seed` removes the database
            max_examples=count, database=database, deadline=None, phases=phases,
            suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False,
            backend=independent_draws(),
        )  # fmt: skip
        @seed(start)
        @given(self._strategy())
        def attempt(program: AnyProgram) -> None:
            self._attempt(program, state)

        try:
            attempt()
        except SkipTest:  # Hypothesis raises it for an empty database
            return None
        except (Failing, LateShrinking):
            assert state.smallest is not None
            program, verdict = state.smallest

            def fails(smaller: AnyProgram) -> bool:
                try:
                    return self._verdict(smaller, state).signature == verdict.signature
                except LateShrinking:
                    return False

            return Found(simplified(program, fails), verdict, self.judged, start)
        return None

    def _strategy(self) -> st.SearchStrategy[AnyProgram]:
        """Return the strategy for the kind of programs. Units and device concern graphs alone."""
        if self.kind is ProgramKind.PYTHON:
            return python_programs(OF_BACKEND.get(self.backend, DRAWN))
        return programs(units=tuple(self.units), device=self.device, options=self.options)

    def _attempt(self, program: AnyProgram, state: _Round) -> None:
        verdict = self._verdict(program, state)
        for op in {*program.ops}:
            event(op)
        if verdict.status is not Status.FAILED or state.hunted not in ("", verdict.signature):
            return
        state.hunted = verdict.signature
        state.smallest = (program, verdict)
        self._hunted.add(program.key)
        raise Failing(verdict.signature)

    def _verdict(self, program: AnyProgram, state: _Round) -> ProgramVerdict:
        """Return the verdict, known if a finding covers it. No program is judged twice.

        Raises Enough, or LateShrinking if a failure is being shrunk.
        """
        known = self._known.get(program.key)
        if known is not None:
            if not state.hunted and program.key in self._hunted:
                return msgspec.structs.replace(known, status=Status.KNOWN)
            if not state.hunted:
                state.until = self._shrink_until()
            return self._covered(program, known, state)  # a finding may have been added since
        if state.hunted:
            if time.monotonic() > state.until:
                raise LateShrinking
            try:
                verdict = self._covered(program, self.judge(program), state)
            except Enough:
                raise LateShrinking from None
        else:
            self._afford()
            self.judged += 1
            verdict = self._covered(program, self.judge(program), state)
            self.on_verdict(program, verdict)
            state.until = self._shrink_until()
        self._known[program.key] = verdict
        return verdict

    def _shrink_until(self) -> float:
        """Return the time until which a failure that is found now is shrunk."""
        end = time.monotonic() + SHRINKING
        return end if self.until is None else min(end, self.until - self.reserve)

    def _covered(
        self, program: AnyProgram, verdict: ProgramVerdict, state: _Round
    ) -> ProgramVerdict:
        if verdict.status is not Status.FAILED:
            return verdict
        if not state.hunted:
            state.findings = tuple(self.findings)
        if covering(state.findings, self.backend, verdict.signature, program) is None:
            return verdict
        return msgspec.structs.replace(verdict, status=Status.KNOWN)

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds of the job; None without a limit."""
        return None if self.until is None else self.until - time.monotonic()

    def _afford(self) -> None:
        if self.examples is not None and self.judged >= self.examples:
            raise Enough
        if self.seconds_left is not None and self.seconds_left < self.reserve:
            raise Enough
