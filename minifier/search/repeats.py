"""What can be concluded from runs that do not always end in the same way.

Noise is one-sided. A program without the fault never fails with that failure, so a single failing
run settles a question. A program with the fault may pass by luck, so a pass counts only after
enough repeats. The number of repeats follows from the failure rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import comb

import msgspec

from tcdebug.minifier.cases.outcome import Kind, Outcome

MOST_PASSES = 50
"""A failure that would need more passes is too rare to be distinguished from luck."""


@dataclass(frozen=True)
class Rate:
    """How often a program with the fault failed, over runs that were not selected for failing."""

    failed: int
    runs: int

    @property
    def estimate(self) -> float:
        """The fraction of runs that failed."""
        return self.failed / self.runs if self.runs else 0.0

    def lower(self, confidence: float) -> float:
        """Return a lower bound on the failure rate at this confidence.

        This is the exact one-sided bound of Clopper and Pearson (Biometrika 26, 1934): the rate at
        which this many failures or more have a probability of 1 - confidence.
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
        """Return the probability of at least this many failures if each run fails with p."""
        n = self.runs
        return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(self.failed, n + 1))


@cache
def confidence(rate: Rate, passes: int, answers: int = 1) -> float:
    """Return the confidence that none of several "passes" answers is luck.

    Each answer was repeated `passes` times. The result is one minus the largest probability, over
    all true rates, that the failure shows as often as in `rate` and then hides in every run of at
    least one answer. It therefore holds for any true rate, provided that all programs with the
    fault fail equally often. `rate` and the passes must come from separate runs.
    """

    def luck(p: float) -> float:
        return rate._as_often(p) * min(1.0, answers * (1 - p) ** passes)

    # a product of log-concave functions of p has a single peak: ternary search
    low, high = 0.0, 1.0
    for _ in range(40):
        third = (high - low) / 3
        if luck(low + third) < luck(high - third):
            low += third
        else:
            high -= third
    return 1 - luck((low + high) / 2)


def likelihood(failed: int, passed: int) -> float:
    """Return the largest probability, over all rates, that runs at random end in such a pattern.

    That is the probability that just these runs fail and just those pass.
    """
    rate = failed / (failed + passed)
    return float(rate**failed * (1 - rate) ** passed)


def passes_needed(rate: Rate, answers: int, wanted: float) -> int | None:
    """Return how many passes each of several "passes" answers needs to be believed.

    Returns None if it takes more than MOST_PASSES. Passes then prove nothing.
    """
    for passes in range(1, MOST_PASSES + 1):
        if confidence(rate, passes, answers) >= wanted:
            return passes
    return None


class Tally(msgspec.Struct, frozen=True):
    """The runs of one question: the decisive outcome, and how many runs agree with it."""

    outcome: Outcome
    runs: int = 1
    agreeing: int = 1

    @property
    def contradictory(self) -> bool:
        """Whether it failed in only some of the runs."""
        return self.outcome.failed and self.agreeing < self.runs

    def again(self, failure: Outcome) -> Rate:
        """Return the failure rate after the first run, which was selected for failing."""
        failed = self.agreeing - 1 if failure.same_bug(self.outcome) else 0
        return Rate(failed, self.runs - 1)

    def plus(self, outcome: Outcome, failure: Outcome | None) -> Tally:
        """Add one run. `failure` takes precedence, then other failures, then passes."""
        if _weight(outcome, failure) > _weight(self.outcome, failure):
            return Tally(outcome, self.runs + 1)
        same = outcome.same_bug(self.outcome) or (
            outcome.kind is self.outcome.kind and outcome.signature == self.outcome.signature
        )
        return Tally(self.outcome, self.runs + 1, self.agreeing + same)

    def settled(self, failure: Outcome | None, needed: int) -> bool:
        """Return whether the outcome can be believed, if a pass needs `needed` runs."""
        outcome = self.outcome
        # an exception in eager is deterministic; a hang or crash of eager may not be
        never_a_case = outcome.kind is Kind.INVALID and not outcome.signature
        certain = outcome.failed and (failure is None or outcome.same_bug(failure))
        return certain or never_a_case or self.runs >= needed


def _weight(outcome: Outcome, failure: Outcome | None) -> int:
    if not outcome.failed:
        return 0
    return 2 if failure is not None and outcome.same_bug(failure) else 1


def settle(
    known: Tally | None, run: Callable[[], Outcome], failure: Outcome | None, needed: int
) -> Iterator[Tally]:
    """Run a question until its answer can be believed. Yield the tally after each new run."""
    tally = known
    while tally is None or not tally.settled(failure, needed):
        outcome = run()
        tally = Tally(outcome) if tally is None else tally.plus(outcome, failure)
        yield tally
