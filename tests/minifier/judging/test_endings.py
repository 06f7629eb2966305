"""The outcome of a case, derived from how its child ended."""

from __future__ import annotations

import pytest

from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.judging.endings import ENDLESS, outcome_of
from tcdebug.minifier.processes.process import Ended


def ended(phase: str, status: int | None, *, timed_out: bool = False) -> Ended:
    return Ended(None, phase, status, 0, timed_out, False, 1, 12.4, 1.0)


@pytest.mark.parametrize("phase", ["compile", "forward", "backward"])
def test_a_kernel_that_does_not_end_is_a_hang_with_any_time_limit(phase: str) -> None:
    outcome = outcome_of(ended(phase, ENDLESS))
    assert (outcome.kind, outcome.signature) == (Kind.HANG, f"{phase} | hang")
    assert outcome.message == "a kernel does not end; stopped after 12 s"
    assert outcome.endless


def test_a_run_that_reaches_its_time_limit_may_end_with_more_time() -> None:
    outcome = outcome_of(ended("forward", None, timed_out=True))
    assert (outcome.kind, outcome.signature) == (Kind.HANG, "forward | hang")
    assert not outcome.endless


def test_both_kinds_of_hang_are_the_same_bug() -> None:
    by_kernel, by_time = (
        outcome_of(ended("forward", ENDLESS)),
        outcome_of(ended("forward", None, timed_out=True)),
    )
    assert by_kernel.same_bug(by_time)


def test_the_exit_status_of_an_endless_kernel_is_invalid_in_eager() -> None:
    assert outcome_of(ended("eager", ENDLESS)).kind is Kind.INVALID
