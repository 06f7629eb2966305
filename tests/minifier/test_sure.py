"""Bisection of failures that show only sometimes: the right culprit, or none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.gate import Gate, Toggles
from tcdebug.minifier.bisect import Ask, Verdict, bisect
from tcdebug.minifier.flaky import Rate, Tally, settle
from tcdebug.minifier.outcome import Kind, Outcome
from tcdebug.minifier.sure import Sure, surely

OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
STEPS = [
    *(("passes.algebraic", f"n{k}") for k in range(12)),
    *(("lower.aten.add.Tensor", f"n{k}") for k in range(30)),
    *(("fuse.inline", f"n{k}") for k in range(25)),
]
ONE_STEP = (("lower.aten.add.Tensor", "n17"),)
WHOLE_UNIT = tuple(("lower.aten.add.Tensor", f"n{k}") for k in range(9, 30))

Step = tuple[str, str]
"""What the gate is asked: unit and subject."""


@dataclass
class Flaky:
    """A compile that is wrong with probability `p` once it takes a step of the culprits'."""

    p: float
    seed: int
    culprits: Sequence[Step] = ONE_STEP
    always: bool = False
    """It fails with every step held back, too."""
    passes_needed: int = 1
    contradicted: bool = False
    runs: int = 0
    tallies: dict[tuple[str, ...], Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)

    def need(self, passes: int) -> None:
        self.passes_needed = passes

    def ask(self, toggles: Toggles, purpose: str) -> Outcome:
        known = self.tallies.get(tuple(toggles.texts()))
        for tally in settle(known, lambda: self.run(toggles), WRONG, self.passes_needed):
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
        gate = Gate(toggles, "g-0")
        taken = [step for step in STEPS if gate.allows(*step)]
        faulty = self.always or bool(set(self.culprits) & set(taken))
        fails = self.generator.random() < self.p and faulty
        end = WRONG if fails else OK
        return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    def bisected(self, wanted: float = 0.99) -> Sure:
        failure = self.ask(Toggles(), "the failure")
        while not failure.failed:
            self.tallies.clear()
            failure = self.ask(Toggles(), "the failure")

        def search(ask: Ask) -> Verdict:
            return bisect(ask, failure, Toggles(), EventLog(None))

        return surely(self, failure, Toggles(), search, wanted)


def answer(sure: Sure, culprit: Step = ONE_STEP[0]) -> str:
    """Whether a culprit was named, and whether it is the one."""
    if not sure.verdict.confirmed:
        return "none"
    assert sure.confidence >= 0.99
    named = [(d.unit, d.subject) for d in sure.verdict.decisions()]
    return "right" if named == [culprit] else "wrong"


@pytest.mark.parametrize(
    ("p", "right"), [(1.0, 200), (0.95, 199), (0.9, 197), (0.8, 195), (0.7, 190), (0.5, 150)]
)
def test_a_flaky_failure_is_blamed_on_the_innocent_no_oftener_than_is_said(
    p: float, right: int
) -> None:
    answers = Counter(answer(Flaky(p, seed).bisected()) for seed in range(200))
    assert answers["wrong"] <= 0.01 * 200
    assert answers["right"] >= right


@pytest.mark.parametrize("p", [0.95, 0.9, 0.8, 0.7])
def test_with_more_confidence_it_never_is(p: float) -> None:
    answers = Counter(answer(Flaky(p, seed).bisected(0.999)) for seed in range(200))
    assert answers["wrong"] == 0
    assert answers["right"] >= 190


@pytest.mark.parametrize(("p", "right"), [(1.0, 200), (0.9, 197), (0.7, 190)])
def test_where_a_whole_unit_is_at_fault_its_first_place_is_named(p: float, right: int) -> None:
    flaky = [Flaky(p, seed, WHOLE_UNIT) for seed in range(200)]
    answers = Counter(answer(f.bisected(), WHOLE_UNIT[0]) for f in flaky)
    assert answers["wrong"] <= 0.01 * 200
    assert answers["right"] >= right


def test_a_failure_that_shows_every_time_costs_seven_runs_more() -> None:
    plain, sure = Flaky(1.0, 0), Flaky(1.0, 0)
    failure = plain.ask(Toggles(), "the failure")
    bisect(plain.ask, failure, Toggles(), EventLog(None))
    found = sure.bisected()
    assert found.rate == Rate(4, 4)
    assert sure.runs - plain.runs == 7
    assert list(found.notes(0.99)) == []


def test_a_flaky_failure_says_how_often_it_shows() -> None:
    found = Flaky(0.8, 1).bisected()
    assert answer(found) == "right"
    (note,) = found.notes(0.99)
    assert note.startswith(f"it is flaky: it failed again in {found.rate.failed} of 12 runs ")


def test_a_failure_that_is_too_rare_has_no_culprit() -> None:
    found = Flaky(0.05, 3).bisected()
    assert found.verdict == Verdict()
    assert found.confidence == 0.0
    assert list(found.notes(0.99))[-1] == (
        "a culprit could not be named with a confidence of 99%"
    )


def test_a_failure_with_everything_off_needs_no_passes() -> None:
    flaky = Flaky(1.0, 0, always=True)
    found = flaky.bisected()
    assert found.verdict.core
    assert flaky.runs == 6
    assert list(found.notes(0.99)) == []
