"""What may be concluded from runs that do not always end in the same way.

Noise is one-sided. A program without the fault never fails as the fault does, so one failing run
settles a question; a program with the fault may pass by luck, so a pass counts only after it was
seen often enough. How often follows from how reliably the failure shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb

import msgspec

from tcdebug.minifier.cases.outcome import Kind, Outcome

MOST_PASSES = 50
"""A failure for which more passes would be needed is too rare to be told from luck."""


@dataclass(frozen=True)
class Rate:
    """How often a program with the fault failed in runs of which none was chosen for failing."""

    failed: int
    runs: int

    @property
    def estimate(self) -> float:
        """The share of runs that failed."""
        return self.failed / self.runs if self.runs else 0.0

    def lower(self, confidence: float) -> float:
        """The rate is at least this, with this confidence.

        The exact one-sided bound of Clopper and Pearson (Biometrika 26, 1934): the rate at which
        so many failures, or more, would be seen with a chance of 1 - confidence.
        """
        if self.failed == 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            if self._as_often(middle) < 1 - confidence:
                low = middle
            else:
                high = middle
        return low

    def _as_often(self, p: float) -> float:
        """The chance of as many failures as there were, or more, where each run fails with p."""
        n = self.runs
        return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(self.failed, n + 1))


def confidence(rate: Rate, passes: int, answers: int = 1) -> float:
    """How sure it is that none of several answers "passes" is luck, each after so many passes.

    One minus the chance, at the worst of all true rates, that the failure shows as often as it
    did in `rate` and then hides in every run of at least one answer. So it holds whatever the
    true rate is, provided that programs with the fault fail alike; `rate` and the passes must be
    runs of their own.
    """

    def luck(p: float) -> float:
        return rate._as_often(p) * min(1.0, answers * (1 - p) ** passes)

    # a product of log-concave functions of p has one peak: narrow it down by thirds
    low, high = 0.0, 1.0
    for _ in range(40):
        third = (high - low) / 3
        if luck(low + third) < luck(high - third):
            low += third
        else:
            high -= third
    return 1 - luck((low + high) / 2)


def passes_needed(rate: Rate, answers: int, wanted: float) -> int | None:
    """After how many passes each of several answers "passes" may be believed.

    None where it would take more than MOST_PASSES: then nothing should be concluded from passes.
    """
    for passes in range(1, MOST_PASSES + 1):
        if confidence(rate, passes, answers) >= wanted:
            return passes
    return None


class Tally(msgspec.Struct, frozen=True):
    """What the runs of one question said: the outcome to go by, and how many runs had it."""

    outcome: Outcome
    runs: int = 1
    agreeing: int = 1

    @property
    def contradictory(self) -> bool:
        """Whether it failed in some runs only."""
        return self.outcome.failed and self.agreeing < self.runs

    def again(self, failure: Outcome) -> Rate:
        """How often it failed like this after the first time, for which it was chosen."""
        failed = self.agreeing - 1 if failure.same_bug(self.outcome) else 0
        return Rate(failed, self.runs - 1)

    def plus(self, outcome: Outcome, hunted: Outcome | None) -> Tally:
        """With one run more. The failure that is hunted tells most, a pass least."""
        if _weight(outcome, hunted) > _weight(self.outcome, hunted):
            return Tally(outcome, self.runs + 1)
        same = outcome.kind is self.outcome.kind and outcome.signature == self.outcome.signature
        return Tally(self.outcome, self.runs + 1, self.agreeing + same)

    def settled(self, hunted: Outcome | None, needed: int) -> bool:
        """Whether the outcome may be believed, where a pass counts after `needed` runs."""
        outcome = self.outcome
        # what eager raises is no matter of luck; that eager hangs or crashes may be
        never_a_case = outcome.kind is Kind.INVALID and not outcome.signature
        certain = outcome.failed and (hunted is None or outcome.same_bug(hunted))
        return certain or never_a_case or self.runs >= needed


def _weight(outcome: Outcome, hunted: Outcome | None) -> int:
    if not outcome.failed:
        return 0
    return 2 if hunted is not None and outcome.same_bug(hunted) else 1


def settle(
    known: Tally | None, run: Callable[[], Outcome], hunted: Outcome | None, needed: int
) -> Iterator[Tally]:
    """Run a question until its answer may be believed; the tally after each run that it took."""
    tally = known
    while tally is None or not tally.settled(hunted, needed):
        outcome = run()
        tally = Tally(outcome) if tally is None else tally.plus(outcome, hunted)
        yield tally
