"""Repeats runs until a bisection is certain of its culprit, or names none.

A failure that occurs every time is bisected with one run per question, and only the passes on which
the verdict rests are repeated. If any question gets contradictory answers, or a pass turns out to
be luck, the failure rate is measured, and every pass of a new search is repeated accordingly. Known
answers are reused.

Each of the two searches may use half of the allowed error probability. In the second search the
measured rate determines the number of repeats. A choice that depends on the rate holds for all
rates together if each gets half of that probability; see
`test_a_choice_by_measured_rate_holds_for_all_rates_together`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.bisection.bisect import Ask, Fault, Verdict
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import Rate, passes_needed

CONFIRMING_RUNS = 4
"""Further runs that must fail before a failure is assumed to occur every time."""
CONFIRMING_HANGS = 2
"""The same for a hang, whose runs take longer than the passes that make up for the other two."""
RATE_RUNS = 12
"""Runs that measure the rate of a failure that does not occur every time."""
EXPECTED_PASSES = 10
"""The initial estimate of the number of passing questions in a search."""


class Repeatable(Protocol):
    """What certainty needs of a candidate: repeatable runs, as a `CandidateOracle` has."""

    @property
    def contradicted(self) -> bool: ...

    def require_passes(self, passes: int) -> None: ...

    def ask(self, toggles: Toggles, purpose: str) -> Outcome: ...

    def rate(self, toggles: Toggles, failure: Outcome, runs: int) -> Rate: ...


@dataclass(frozen=True)
class CertainVerdict:
    """A verdict with its failure rate and confidence. It is confirmed only if it is certain."""

    verdict: Verdict
    rate: Rate
    confidence: float

    @property
    def uncertain(self) -> bool:
        """Whether the search was complete and did not confirm its faults."""
        return not self.verdict.confirmed and self.confidence > 0.0

    def notes(self, wanted: float) -> Iterable[str]:
        """Yield notes for a report."""
        if self.rate.failed < self.rate.runs:
            low = self.rate.lower(wanted)
            yield (
                f"it is flaky: it failed again in {self.rate.failed} of {self.rate.runs} runs "
                f"(at least {low:.0%} of the time, with a confidence of {wanted:.0%})"
            )
        if self.confidence < wanted and not self.verdict.core:
            yield f"a culprit could not be named with a confidence of {wanted:.0%}"


def confirming_runs(failure: Outcome) -> int:
    """Return how many further runs must fail before a failure is assumed to occur every time."""
    return CONFIRMING_HANGS if failure.kind is Kind.HANG else CONFIRMING_RUNS


def certain_verdict(
    asked: Repeatable,
    failure: Outcome,
    base: Toggles,
    search: Callable[[Ask], Verdict],
    wanted: float,
) -> CertainVerdict:
    """Return the verdict of a search once it is certain that no pass was luck.

    If the failure is flaky, passes are still repeated after the return. A failure that occurs in
    all of RATE_RUNS runs is not flaky: no run is repeated, and an unconfirmed verdict stays
    unconfirmed. No run is repeated either if the failing run had to be interrupted.
    """
    if failure.interrupted:
        verdict = search(asked.ask)
        return CertainVerdict(verdict, Rate(1, 1), wanted if verdict.faults else 0.0)
    rate = asked.rate(base, failure, confirming_runs(failure))
    doubt = 1 - wanted
    if rate.failed == rate.runs:
        verdict = search(asked.ask)
        if verdict.core:  # it fails with everything off: the verdict rests on no pass
            return CertainVerdict(verdict, rate, 1.0)
        if verdict.confirmed and _rests_on_passes(asked, rate, verdict, base, 1 - doubt / 2):
            asked.require_passes(1)
            return CertainVerdict(verdict, rate, wanted)
        asked.require_passes(1)
        rate = asked.rate(base, failure, RATE_RUNS)
        if rate.failed == rate.runs and not verdict.confirmed and not asked.contradicted:
            return CertainVerdict(verdict, rate, wanted if verdict.faults else 0.0)
    rate = asked.rate(base, failure, RATE_RUNS)
    verdict = _repeated(asked, rate, search, 1 - doubt / 4)
    return CertainVerdict(verdict, rate, wanted if verdict.faults else 0.0)


def _rests_on_passes(
    asked: Repeatable, rate: Rate, verdict: Verdict, base: Toggles, wanted: float
) -> bool:
    """Return whether every run on which a verdict rests passes repeatedly.

    That is the run with all faults off. If a whole unit must be off, its place rests on the run
    that ended before it. If a fault has several places, each of them must fail alone.
    """
    if asked.contradicted:
        return False
    earlier: list[tuple[Outcome, Toggles]] = []
    toggles = base
    for fault in verdict.faults:
        if fault.whole_unit:
            before = fault.failure.decisions.index(fault.decisions[0])
            earlier.append((fault.failure, toggles.limited(ALL, before)))
        toggles = fault.switched_off(toggles)
    passes = passes_needed(rate, len(earlier) + 1, wanted)
    if passes is None:
        return False
    asked.require_passes(passes)
    purpose = "repeat of a pass"
    return (
        asked.ask(toggles, purpose).kind is Kind.OK
        and not any(failure.same_bug(asked.ask(q, purpose)) for failure, q in earlier)
        and all(_each_place_fails(asked, base, verdict, fault) for fault in verdict.faults)
    )


def _each_place_fails(asked: Repeatable, base: Toggles, verdict: Verdict, fault: Fault) -> bool:
    """Return whether each place of a fault fails alone, with everything else that was found off."""
    if len(fault.decisions) == 1:
        return True
    for other in verdict.faults:
        if other is not fault:
            base = other.switched_off(base)
    for place in fault.decisions:
        sites = [d.site for d in fault.decisions if d is not place]
        purpose = f"only one place of {fault.unit}"
        if not fault.failure.same_bug(asked.ask(base.without(sites=sites), purpose)):
            return False
    return True


def _repeated(
    asked: Repeatable, rate: Rate, search: Callable[[Ask], Verdict], wanted: float
) -> Verdict:
    """Search with every pass repeated; again with more repeats if it needed more passes."""
    answers = EXPECTED_PASSES
    while (passes := passes_needed(rate, answers, wanted)) is not None:
        asked.require_passes(passes)
        passed: set[tuple[str, ...]] = set()

        def ask(toggles: Toggles, purpose: str, passed: set[tuple[str, ...]] = passed) -> Outcome:
            outcome = asked.ask(toggles, purpose)
            if outcome.kind is Kind.OK:
                passed.add(tuple(toggles.texts()))
            return outcome

        verdict = search(ask)
        if len(passed) <= answers:
            return verdict
        answers = len(passed)
    return Verdict()
