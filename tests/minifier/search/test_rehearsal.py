"""Predicting the next questions of a search asks nothing and does not change the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from block_graphs import block_graph, holds
from captured import targets
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings
from virtual_time import VirtualTime

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Verdict, bisect
from tcdebug.minifier.bisection.enabled import fewest_enabled
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.reduction import CaseReduction
from tcdebug.minifier.reduction.operators.truncate import Truncate
from tcdebug.minifier.reduction.reducer import Interesting, Reducer
from tcdebug.minifier.search.algorithms import first_bad, minimal_subset
from tcdebug.minifier.search.reducing import reduce_ahead

PROPERTY = property_settings(60)
OK = Outcome(Kind.OK)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value")
JOBS = st.integers(2, 5)

Search = Callable[[Callable[[Any], Any]], Any]


def same_with_many(truth: Callable[[Any], Any], search: Search, jobs: int) -> VirtualTime:
    """Search with one job and with several. Return the latter, which must not be slower."""
    one, many = VirtualTime(truth, 1), VirtualTime(truth, jobs)
    assert one.searched(search) == many.searched(search)
    assert one.asked == many.asked
    assert one.runs == one.seconds == len(one.answers)
    assert many.seconds <= one.seconds
    assert all(many.answers[key] == answer for key, answer in one.answers.items())
    return many


# -- the searches ---------------------------------------------------------------------------


@PROPERTY
@given(st.integers(1, 5000), JOBS, st.data())
def test_a_search_is_the_same_with_many_jobs(length: int, jobs: int, data: st.DataObject) -> None:
    planted = data.draw(st.integers(1, length))
    same_with_many(lambda n: n >= planted, lambda ask: first_bad(0, length, ask), jobs)


def test_three_jobs_take_two_binary_search_steps_in_the_time_of_one_run() -> None:
    many = same_with_many(lambda n: n >= 700, lambda ask: first_bad(0, 1024, ask), 3)
    assert many.seconds == 5
    assert many.runs == 3 * 5


@PROPERTY
@given(st.integers(1, 40), JOBS, st.data())
def test_a_smallest_subset_is_the_same_with_many_jobs_whatever_is_bad(
    size: int, jobs: int, data: st.DataObject
) -> None:
    bad_ones = data.draw(st.lists(st.frozensets(st.integers(0, size - 1)), max_size=5))

    def search(ask: Callable[[Any], bool]) -> list[int]:
        return minimal_subset(range(size), lambda subset: ask(frozenset(subset)))

    def truth(subset: frozenset[int]) -> bool:
        return any(bad <= subset for bad in bad_ones)

    same_with_many(truth, search, jobs)


# -- bisection ------------------------------------------------------------------------------

FAMILIES = ("passes", "lower", "fuse", "codegen")


def compiled(
    steps: Sequence[tuple[str, str]], culprits: Sequence[tuple[str, str]]
) -> Callable[[Toggles], Outcome]:
    """A compile that is wrong as soon as it takes one of the culprits' steps."""

    def run(toggles: Toggles) -> Outcome:
        gate = Gate(toggles, "g-0")
        taken = [step for step in steps if gate.allows(*step)]
        end = WRONG if set(culprits) & set(taken) else OK
        return Outcome(end.kind, end.phase, end.signature, decisions=tuple(gate.decisions))

    return run


@PROPERTY
@given(JOBS, st.data())
def test_a_bisection_has_the_same_verdict_with_many_jobs(jobs: int, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=4, max_size=4))
    steps = [
        (f"{family}.{k // 4}", f"n{k}")
        for family, size in zip(FAMILIES, sizes, strict=True)
        for k in range(size)
    ]
    culprits = data.draw(st.lists(st.sampled_from(steps), min_size=1, max_size=3, unique=True))
    run = compiled(steps, culprits)
    failure = run(Toggles())

    def search(ask: Callable[[Any], Outcome]) -> tuple[Verdict, object]:
        def about(toggles: Toggles, purpose: str) -> Outcome:
            return ask(toggles)

        verdict = bisect(about, failure, Toggles(), EventLog(None))
        units = verdict.units()
        return verdict, [fewest_enabled(about, failure, u, Toggles()) for u in units]

    verdicts = []
    for count in (1, jobs):
        time = VirtualTime(run, count, (OK, failure), key=lambda toggles: tuple(toggles.texts()))
        verdicts.append((time.searched(search), time.asked))
    assert verdicts[0] == verdicts[1]


# -- the reducer ----------------------------------------------------------------------------


def reduced(case: Case, time: VirtualTime) -> Case:
    def interesting(ask: Callable[[Case], bool]) -> Interesting:
        return lambda candidate, purpose: ask(candidate)

    reducer = Reducer(case, EventLog(None))
    reduce_ahead(reducer, time.ask, time, interesting)
    assert not time.ends or time.jobs == 1
    return reducer.best


@pytest.fixture(scope="module")
def graph() -> Case:
    return block_graph(64)


@pytest.mark.slow
@property_settings(6)
@given(st.sets(st.sampled_from(["relu", "softmax", "cat", "exp", "sin", "mean"]), min_size=1), JOBS)
def test_the_smallest_case_is_the_same_with_many_jobs(
    graph: Case, planted: set[str], jobs: int
) -> None:
    def truth(case: Case) -> bool:
        return holds(case, tuple(planted))

    one = VirtualTime(truth, 1, key=lambda case: case.key)
    many = VirtualTime(truth, jobs, key=lambda case: case.key)
    best = reduced(graph, one)
    assert set(targets(best)) == planted
    assert reduced(graph, many).key == best.key
    assert many.asked == one.asked
    assert many.seconds <= 0.85 * one.seconds


@pytest.mark.parametrize(("jobs", "seconds"), [(1, 23), (2, 15), (4, 10)])
def test_more_jobs_reduce_a_case_in_less_time(graph: Case, jobs: int, seconds: int) -> None:
    time = VirtualTime(lambda case: holds(case, ("exp", "sin")), jobs, key=lambda case: case.key)
    reduced(graph, time)
    assert time.seconds == seconds


def test_one_job_creates_only_candidates_that_are_asked_about(graph: Case) -> None:
    made: list[str] = []

    @dataclass(frozen=True)
    class Watched:
        """A reduction that records the candidates it creates."""

        reduction: CaseReduction
        name: str = "watched"
        ordered: bool = True

        def edits(self, case: Case) -> list[str]:
            return self.reduction.edits(case)

        def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
            candidate = self.reduction.apply(case, edits)
            assert candidate is not None
            made.append(candidate.key)
            return candidate

    def asked(jobs: int) -> VirtualTime:
        made.clear()
        time = VirtualTime(lambda c: holds(c, ("relu",)), jobs, key=lambda case: case.key)
        reducer = Reducer(graph, EventLog(None))

        def search(ask: Callable[[Case], bool]) -> None:
            reducer.rehearsal().reduce(Watched(Truncate()), lambda c, purpose: ask(c))

        time.searched(search)
        return time

    assert asked(1).asked == made
    assert asked(2).runs == len(set(made)) == len(made) > len(asked(1).asked)
