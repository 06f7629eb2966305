"""Calls of a graph after the first. What they find on a GPU is tested in tests/device."""

from __future__ import annotations

from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.further_calls import judged_calls

OUTCOMES = {
    "right": Outcome(Kind.OK),
    "wrong": Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0"),
}


def test_without_a_gpu_only_the_first_call_is_judged() -> None:
    calls: list[str] = []

    def again() -> str:
        calls.append("again")
        return "wrong"

    assert judged_calls("right", again, lambda results: OUTCOMES[results]).kind is Kind.OK
    assert calls == []


def test_a_first_call_that_fails_is_the_outcome() -> None:
    found = judged_calls("wrong", lambda: "right", lambda results: OUTCOMES[results])
    assert found == OUTCOMES["wrong"]
