"""The output during a search."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tcdebug.display.progress import ProgressDisplay


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": kind, "data": data}


def ran(seconds: float, *, cached: bool = False) -> dict[str, Any]:
    return event("candidate", purpose="x", outcome="ok", cached=cached, seconds=seconds)


def said(*records: dict[str, Any]) -> list[str]:
    text = io.StringIO()
    ProgressDisplay(console=Console(file=text, width=200)).feed(records)
    return text.getvalue().splitlines()


def test_a_bisection_says_how_many_runs_are_left_and_how_long_they_may_take() -> None:
    plan = event("bisect.plan", over="decisions", size=100, expected=9)
    step = event("bisect.step", over="decisions", low=0, high=50)
    assert said(ran(2.0), ran(4.0), plan, ran(3.0), step) == [
        "· bisecting 100 decisions: at most 9 runs left, about 27 s",
        "· in decisions 0..50: at most 6 runs left, about 18 s",
    ]


def test_known_answers_take_no_time() -> None:
    plan = event("bisect.plan", over="units", size=8, expected=3)
    assert said(ran(500.0, cached=True), plan) == ["· bisecting 8 units: at most 3 runs left"]


def test_less_than_a_second_is_not_estimated() -> None:
    plan = event("bisect.plan", over="units", size=8, expected=3)
    assert said(ran(0.2), plan) == ["· bisecting 8 units: at most 3 runs left"]


def test_the_last_step_of_a_search_shows_no_estimate() -> None:
    assert said(event("bisect.step", over="units", low=4, high=5)) == ["· in units 4..5"]


def test_minimising_shows_how_many_runs_are_left_in_the_round() -> None:
    def plan(reduction: str, size: int, expected: int) -> dict[str, Any]:
        data = {"reduction": reduction, "size": size, "unit": "nodes", "expected": expected}
        return event("minify.plan", **data)

    names = {"reduction": "truncate", "unit": "nodes"}
    assert said(
        plan("truncate", 15, 30),
        ran(2.0),
        event("minify.step", nodes_before=15, nodes_after=12, **names),
        plan("cut_nodes", 12, 20),
        ran(4.0),
        event("minify.step", nodes_before=12, nodes_after=9, **names),
    ) == [
        "· minimising 15 nodes: at most 30 runs left in this round",
        "· truncate: 15 -> 12 nodes: at most 29 runs left in this round",
        "· truncate: 12 -> 9 nodes: at most 19 runs left in this round",
    ]
