"""What can be concluded from runs that do not always end in the same way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import comb

import msgspec
import pytest

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import (
    MOST_PASSES,
    Rate,
    Tally,
    confidence,
    likelihood,
    passes_needed,
    settle,
)

OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
CRASH = Outcome(Kind.CRASH, "forward", "forward | SIGSEGV")
RAISES = Outcome(Kind.INVALID, "eager", message="ValueError: sizes")
EAGER_HANGS = Outcome(Kind.INVALID, "eager", "eager | hang")


# -- rates ----------------------------------------------------------------------------------


def test_the_lower_bound_is_that_of_clopper_and_pearson() -> None:
    assert Rate(10, 10).lower(0.975) == pytest.approx(0.691503, abs=1e-6)
    assert Rate(8, 10).lower(0.975) == pytest.approx(0.443905, abs=1e-6)
    assert Rate(1, 20).lower(0.95) == pytest.approx(0.002561, abs=1e-6)
    assert Rate(3, 3).lower(0.99) == pytest.approx(0.01 ** (1 / 3))
    assert Rate(0, 10).lower(0.99) == 0.0


def test_an_estimate_is_the_fraction_of_failures() -> None:
    assert Rate(8, 10).estimate == 0.8
    assert Rate(0, 0).estimate == 0.0


def test_the_confidence_holds_at_the_worst_of_all_true_rates() -> None:
    worst = max((k / 1000) ** 3 * (1 - k / 1000) ** 4 for k in range(1001))
    assert confidence(Rate(3, 3), 4) == pytest.approx(1 - worst, abs=1e-6)
    assert confidence(Rate(3, 3), 4) == pytest.approx(0.9916, abs=1e-4)
    assert confidence(Rate(0, 5), 40) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize(
    ("rate", "answers", "passes"),
    [
        (Rate(3, 3), 1, 4),
        (Rate(3, 3), 10, 10),
        (Rate(12, 12), 10, 3),
        (Rate(9, 10), 10, 5),
        (Rate(8, 10), 10, 6),
        (Rate(7, 10), 10, 8),
        (Rate(5, 10), 10, 16),
        (Rate(3, 10), 20, None),
        (Rate(0, 10), 1, None),
    ],
)
def test_the_rarer_the_failure_the_more_passes_are_needed(
    rate: Rate, answers: int, passes: int | None
) -> None:
    assert passes_needed(rate, answers, 0.99) == passes
    if passes is not None:
        assert confidence(rate, passes, answers) >= 0.99
        assert confidence(rate, passes - 1, answers) < 0.99


def test_more_certainty_takes_more_passes() -> None:
    needed = [passes_needed(Rate(8, 10), 10, wanted) for wanted in (0.9, 0.99, 0.999)]
    assert needed == [4, 6, 10]
    assert MOST_PASSES == 50


# -- tallies --------------------------------------------------------------------------------


def after(*outcomes: Outcome, failure: Outcome | None = WRONG) -> Tally:
    """Return what is known after these runs."""
    tally = Tally(outcomes[0])
    for outcome in outcomes[1:]:
        tally = tally.plus(outcome, failure)
    return tally


def test_a_pass_counts_after_enough_runs_and_the_failure_at_once() -> None:
    assert after(OK).settled(WRONG, 1)
    assert not after(OK, OK).settled(WRONG, 3)
    assert after(OK, OK, OK).settled(WRONG, 3)
    assert after(WRONG).settled(WRONG, 3)
    assert after(OK, WRONG).settled(WRONG, 30)


def test_the_first_failure_counts_without_a_repeat() -> None:
    assert after(CRASH).settled(None, 3)
    assert not after(OK).settled(None, 3)


def test_a_different_failure_is_an_answer_only_after_enough_runs() -> None:
    assert not after(CRASH).settled(WRONG, 3)
    assert after(CRASH, WRONG) == Tally(WRONG, 2, 1)
    assert after(OK, CRASH, OK) == Tally(CRASH, 3, 1)
    assert after(OK, CRASH, OK).settled(WRONG, 3)


def test_one_exception_in_eager_is_conclusive_but_one_hang_is_not() -> None:
    assert after(RAISES).settled(WRONG, 10)
    assert not after(EAGER_HANGS).settled(WRONG, 10)


def test_two_answers_to_one_question_are_a_contradiction() -> None:
    assert after(OK, WRONG).contradictory
    assert after(WRONG, WRONG, OK).contradictory
    assert not after(OK, OK).contradictory
    assert not after(WRONG, WRONG).contradictory


def test_the_run_that_selected_a_failure_does_not_count() -> None:
    assert after(WRONG, WRONG, OK, WRONG).again(WRONG) == Rate(2, 3)
    assert after(WRONG).again(WRONG) == Rate(0, 0)
    assert after(CRASH, CRASH).again(WRONG) == Rate(0, 1)


def test_a_tally_can_be_saved_and_loaded() -> None:
    tally = after(OK, WRONG, OK)
    assert msgspec.json.decode(msgspec.json.encode(tally), type=Tally) == tally


# -- repeating ------------------------------------------------------------------------------


def test_a_question_is_run_until_it_is_settled() -> None:
    assert runs_of([OK, OK, OK, OK], needed=3) == [OK, OK, OK]
    assert runs_of([OK, WRONG, OK], needed=3) == [OK, WRONG]
    assert runs_of([WRONG, OK], needed=3) == [WRONG]
    assert runs_of([OK, OK, OK], needed=3, known=after(OK, OK)) == [OK]
    assert runs_of([OK], needed=3, known=after(OK, OK, OK)) == []
    assert runs_of([OK], needed=1, known=after(OK, WRONG)) == []


def runs_of(ends: list[Outcome], needed: int, known: Tally | None = None) -> list[Outcome]:
    """Return the runs that it takes to settle a question whose runs end like this."""
    left: Iterator[Outcome] = iter(ends)
    ran: list[Outcome] = []

    def run() -> Outcome:
        ran.append(next(left))
        return ran[-1]

    for _ in settle(known, run, WRONG, needed):
        pass
    return ran


@pytest.mark.parametrize("answers", [1, 10, 20])
@pytest.mark.parametrize("runs", [4, 12, 16])
def test_a_choice_by_measured_rate_holds_for_all_rates_together(runs: int, answers: int) -> None:
    """Each measured rate determines its number of passes, with half the allowed doubt."""
    passes = [passes_needed(Rate(k, runs), answers, 0.995) for k in range(runs + 1)]

    def luck(p: float) -> float:
        return sum(
            comb(runs, k) * p**k * (1 - p) ** (runs - k) * min(1, answers * (1 - p) ** needed)
            for k, needed in enumerate(passes)
            if needed is not None
        )

    assert max(luck(k / 200) for k in range(1, 201)) < 0.01


@pytest.mark.parametrize("p", [0.95, 0.8, 0.5, 0.3])
def test_an_accepted_pass_is_wrong_no_more_often_than_stated(p: float) -> None:
    generator = random.Random(int(p * 100))

    def run() -> Outcome:
        return WRONG if generator.random() < p else OK

    rounds, lucky = 1000, 0
    chosen = [passes_needed(Rate(k, 12), 1, 0.995) for k in range(13)]
    for _ in range(rounds):
        needed = chosen[sum(run().failed for _ in range(12))]
        if needed is not None:
            lucky += not list(settle(None, run, WRONG, needed))[-1].outcome.failed
    assert lucky / rounds < 0.01


def test_a_pattern_of_runs_is_at_most_as_likely_as_with_the_rate_that_it_shows() -> None:
    assert likelihood(1, 1) == 0.25
    assert likelihood(3, 3) == 1 / 64
    assert likelihood(4, 0) == 1.0
    for percent in range(101):
        rate = percent / 100
        assert rate**3 * (1 - rate) ** 2 <= likelihood(3, 2) + 1e-12
