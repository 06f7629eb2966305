"""Which failures count."""

from __future__ import annotations

import pytest

from tcdebug.minifier.cases.criteria import ORACLES, Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome

NAN = Outcome(Kind.WRONG, "backward", "backward | wrong nan", "gradient 0: 3 of 4 differ in nan")


@pytest.mark.parametrize(
    ("oracle", "kinds"),
    [
        ("default", set(Kind)),
        ("eager", set(Kind)),
        ("fp64", set(Kind)),
        ("crash", {Kind.EXCEPTION, Kind.CRASH, Kind.HANG, Kind.KILLED}),
        ("nan", {Kind.WRONG}),
        ("perf", {Kind.SLOW, Kind.RECOMPILE}),
        ("compile-time", {Kind.SLOW}),
        ("validation", {Kind.WRONG}),
    ],
)
def test_an_oracle_counts_kinds(oracle: str, kinds: set[Kind]) -> None:
    assert oracle in ORACLES
    assert {k for k in Kind if Criteria(oracle).counts(Outcome(k))} == kinds


@pytest.mark.parametrize(
    ("regex", "counts"),
    [
        ("", True),
        ("wrong", True),
        ("^wrong backward", True),
        (r"gradient \d", True),
        ("forward", False),
        ("nan|inf", True),
        ("NaN", False),
    ],
)
def test_a_regex_is_searched_for_in_kind_signature_and_message(regex: str, counts: bool) -> None:
    assert Criteria(fail_regex=regex).counts(NAN) is counts


def test_every_candidate_that_a_check_rejects_counts_as_a_failure() -> None:
    assert Criteria("perf", check="false").counts(Outcome(Kind.BAD))


def test_the_exit_of_a_script_says_nothing_about_numbers_and_speed() -> None:
    graphs_only = [name for name in ORACLES if Criteria(name).graphs_only]
    assert graphs_only == ["nan", "perf", "compile-time", "validation"]
    assert not Criteria("nan", check="false").graphs_only
