"""Simulated compiles that fail only sometimes: 67 decisions, and a coin toss for each run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask, Verdict, bisect
from tcdebug.minifier.bisection.certainty import CertainVerdict, certain_verdict
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import Rate, Tally, settle

OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
HANG = Outcome(Kind.HANG, "compile", "compile | hang")
STEPS = [
    *(("passes.algebraic", f"n{k}") for k in range(12)),
    *(("lower.aten.add.Tensor", f"n{k}") for k in range(30)),
    *(("fuse.inline", f"n{k}") for k in range(25)),
]
ONE_STEP = (("lower.aten.add.Tensor", "n17"),)
WHOLE_UNIT = tuple(("lower.aten.add.Tensor", f"n{k}") for k in range(9, 30))

Step = tuple[str, str]
"""A question to the gate: unit and subject."""


@cache
def decided(off: tuple[str, ...]) -> tuple[Decision, ...]:
    """Return the gate's decisions on the steps, which are the same in every run."""
    gate = Gate(Toggles.parse(off), "g-0")
    for step in STEPS:
        gate.allows(*step)
    return tuple(gate.decisions)


@dataclass
class Flaky:
    """A compile that fails with probability `p` once it takes one of the culprits' steps."""

    p: float
    seed: int
    culprits: Sequence[Step] = ONE_STEP
    always: bool = False
    """Whether it also fails with every step off."""
    otherwise: Outcome = OK
    """Its outcome if it does not fail."""
    failure: Outcome = WRONG
    searches: int = 0
    passes_needed: int = 1
    contradicted: bool = False
    runs: int = 0
    tallies: dict[tuple[str, ...], Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)

    def require_passes(self, passes: int) -> None:
        self.passes_needed = passes

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        known = self.tallies.get(tuple(toggles.texts()))
        for tally in settle(known, lambda: self.run(toggles), self.failure, self.passes_needed):
            self.keep(toggles, tally)
        return self.tallies[tuple(toggles.texts())].outcome

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate:
        tally = self.tallies[tuple(toggles.texts())]
        while tally.runs <= runs:
            tally = tally.plus(self.run(toggles), failure)
            self.keep(toggles, tally)
        return tally.again(failure)

    def keep(self, toggles: Toggles, tally: Tally) -> None:
        self.tallies[tuple(toggles.texts())] = tally
        self.contradicted |= tally.contradictory

    def run(self, toggles: Toggles) -> Outcome:
        self.runs += 1
        decisions = decided(tuple(toggles.texts()))
        taken = {(d.unit, d.subject) for d in decisions if d.allowed}
        faulty = self.always or not taken.isdisjoint(self.culprits)
        fails = self.generator.random() < self.p and faulty
        end = self.failure if fails else self.otherwise
        return Outcome(end.kind, end.phase, end.signature, decisions=decisions)

    def bisected(self, wanted: float = 0.99) -> CertainVerdict:
        failure = self.ask(Toggles(), "the failure")
        while not failure.failed:
            self.tallies.clear()
            failure = self.ask(Toggles(), "the failure")

        def search(ask: Ask) -> Verdict:
            self.searches += 1
            return bisect(ask, failure, Toggles(), EventLog(None))

        return certain_verdict(self, failure, Toggles(), search, wanted)


def answer(sure: CertainVerdict, culprit: Step = ONE_STEP[0]) -> str:
    """Return whether a culprit was named, and whether it is the right one."""
    if not sure.verdict.confirmed:
        return "none"
    assert sure.confidence >= 0.99
    named = [(d.unit, d.subject) for d in sure.verdict.decisions()]
    return "right" if named == [culprit] else "wrong"
