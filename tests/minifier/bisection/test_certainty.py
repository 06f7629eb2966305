"""Bisection of failures that show only sometimes: the right culprit, or none."""

from __future__ import annotations

from collections import Counter

import pytest
from flaky_compiles import HANG, WHOLE_UNIT, Flaky, answer

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Verdict, bisect
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import Rate


@pytest.mark.parametrize(
    ("p", "right"), [(1.0, 200), (0.95, 199), (0.9, 197), (0.8, 195), (0.7, 190), (0.5, 150)]
)
def test_a_flaky_failure_is_blamed_wrongly_no_more_often_than_stated(p: float, right: int) -> None:
    answers = Counter(answer(Flaky(p, seed).bisected()) for seed in range(200))
    assert answers["wrong"] <= 0.01 * 200
    assert answers["right"] >= right


@pytest.mark.parametrize("p", [0.95, 0.9, 0.8, 0.7])
def test_with_higher_confidence_it_is_never_blamed_wrongly(p: float) -> None:
    answers = Counter(answer(Flaky(p, seed).bisected(0.999)) for seed in range(200))
    assert answers["wrong"] == 0
    assert answers["right"] >= 190


@pytest.mark.parametrize(("p", "right"), [(1.0, 200), (0.9, 197), (0.7, 190)])
def test_if_a_whole_unit_is_at_fault_its_first_place_is_named(p: float, right: int) -> None:
    flaky = [Flaky(p, seed, WHOLE_UNIT) for seed in range(200)]
    answers = Counter(answer(f.bisected(), WHOLE_UNIT[0]) for f in flaky)
    assert answers["wrong"] <= 0.01 * 200
    assert answers["right"] >= right


def test_a_failure_that_shows_every_time_costs_seven_more_runs() -> None:
    plain, sure = Flaky(1.0, 0), Flaky(1.0, 0)
    failure = plain.ask(Toggles(), "the failure")
    bisect(plain.ask, failure, Toggles(), EventLog(None))
    found = sure.bisected()
    assert found.rate == Rate(4, 4)
    assert sure.runs - plain.runs == 7
    assert list(found.notes(0.99)) == []


def test_a_hang_that_shows_every_time_hangs_twice_more() -> None:
    hang = Flaky(1.0, 0, failure=HANG)
    found = hang.bisected()
    assert found.rate == Rate(2, 2)
    assert answer(found) == "right"


@pytest.mark.parametrize("p", [0.95, 0.8, 0.5])
def test_a_flaky_hang_is_blamed_wrongly_no_more_often_than_stated(p: float) -> None:
    answers = Counter(answer(Flaky(p, seed, failure=HANG).bisected()) for seed in range(200))
    assert answers["wrong"] <= 0.01 * 200


def test_a_flaky_failure_says_how_often_it_shows() -> None:
    found = Flaky(0.8, 1).bisected()
    assert answer(found) == "right"
    (note,) = found.notes(0.99)
    assert note.startswith(f"it is flaky: it failed again in {found.rate.failed} of 12 runs ")


def test_a_failure_that_is_too_rare_has_no_culprit() -> None:
    found = Flaky(0.05, 3).bisected()
    assert found.verdict == Verdict()
    assert found.confidence == 0.0
    assert list(found.notes(0.99))[-1] == ("a culprit could not be named with a confidence of 99%")


def test_a_failure_with_everything_off_needs_no_passes() -> None:
    flaky = Flaky(1.0, 0, always=True)
    found = flaky.bisected()
    assert found.verdict.core
    assert flaky.runs == 6
    assert list(found.notes(0.99)) == []


def test_a_failure_that_shows_every_time_is_searched_once_even_if_nothing_is_confirmed() -> None:
    """Without the culprit it fails in a different way. Repeating that would say nothing."""
    flaky = Flaky(1.0, 0, otherwise=Outcome(Kind.EXCEPTION, "compile", "compile | AssertionError"))
    found = flaky.bisected()
    assert not found.verdict.confirmed
    assert found.rate == Rate(12, 12)
    assert flaky.searches == 1
    assert flaky.runs <= 30


def test_a_fault_with_several_places_is_confirmed_in_one_search() -> None:
    places = (("fuse.inline", "n3"), ("fuse.inline", "n11"))
    flaky = Flaky(1.0, 0, places)
    found = flaky.bisected()
    assert found.verdict.confirmed
    (fault,) = found.verdict.faults
    assert [(d.unit, d.subject) for d in fault.decisions] == list(places)
    assert flaky.searches == 1


@pytest.mark.parametrize("p", [0.9, 0.7])
def test_several_places_of_a_flaky_fault_are_right_or_not_named(p: float) -> None:
    places = (("fuse.inline", "n3"), ("fuse.inline", "n11"))
    for seed in range(60):
        found = Flaky(p, seed, places).bisected()
        if found.verdict.confirmed:
            named = {(d.unit, d.subject) for f in found.verdict.faults for d in f.decisions}
            assert named <= set(places)
