"""Candidates that run at the same time are started early, and give the same answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import psutil
import pytest
import torch
from captured import captured, targets
from torch import fx

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.oracles.answers import read_answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.reduction.reducer import Interesting, Reducer
from tcdebug.minifier.search.reducing import reduce_ahead
from tcdebug.minifier.search.repeats import Rate
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle


def oracle(folder: Path, backend: Any, jobs: int, reruns: int = 100) -> Oracle:
    folder.mkdir(exist_ok=True)
    subject = GraphSubject(backends.target(backend), EventLog(folder))
    return graph_oracle(subject, Limits(60.0), Budget(reruns=reruns), jobs)


def question(size: int) -> Question:
    """Ask about a case with this many nodes, the fourth of which is tanh."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for k in range(size):
            x = x.tanh() if k == 3 else x + k
        return x

    torch._dynamo.reset()
    return Question(captured(chain, torch.ones(3)), Toggles(), f"{size} nodes")


def asked(by: Oracle, about: Question) -> Kind:
    return by.ask(about.candidate, about.toggles, about.purpose).kind


def test_candidates_run_at_the_same_time(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, meeting(tmp_path, 2), 2)
    questions = [question(2), question(3)]
    ahead.ask_ahead(questions)
    assert [asked(ahead, q) for q in questions] == [Kind.OK, Kind.OK]
    assert ahead.reruns == 2


def test_no_more_run_than_there_are_jobs(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    ahead = oracle(tmp_path, backends.taking(3.0), 2)
    ahead.ask_ahead([question(k) for k in (1, 2, 3)])
    assert len(set(psutil.Process().children()) - before) == 2
    ahead.ask_ahead(())
    assert set(psutil.Process().children()) <= before
    assert ahead.reruns == 2
    assert ahead.answers.known == {}


def test_one_job_runs_nothing_ahead(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.right, 1)
    ahead.ask_ahead([question(1)])
    assert ahead.reruns == 0


def test_the_current_question_always_gets_room(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.taking(1.0), 2)
    ahead.ask_ahead([question(1), question(2)])
    assert asked(ahead, question(3)) is Kind.OK
    assert ahead.reruns == 3
    ahead.ask_ahead(())


def test_a_known_question_is_not_started(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.right, 2)
    asked(ahead, question(1))
    ahead.ask_ahead([question(1)])
    assert ahead.reruns == 1


def test_a_used_up_budget_starts_nothing(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.right, 2, reruns=1)
    ahead.ask_ahead([question(1), question(2)])
    assert asked(ahead, question(1)) is Kind.OK
    with pytest.raises(BudgetUsed):
        asked(ahead, question(2))


def chain(x: torch.Tensor) -> torch.Tensor:
    return ((x + 1).cos().tanh() * 2).exp().sum()


def minimised(by: Oracle) -> Case:
    """Return the smallest case that fails as the whole does."""
    case = captured(chain, torch.ones(3))
    by.failure = by.ask(case, Toggles(), "the whole")
    assert by.failure.kind is Kind.WRONG

    def interesting(ask: Callable[[Question], Outcome]) -> Interesting:
        def fails(candidate: Case, purpose: str) -> bool:
            return by.failure.same_bug(ask(Question(candidate, Toggles(), purpose)))

        return fails

    reducer = Reducer(case, EventLog(None))
    reduce_ahead(reducer, by.answer, by, interesting)
    return reducer.best


@pytest.mark.slow
def test_many_jobs_find_the_same_case_and_answers_as_one(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    one = oracle(tmp_path / "one", backends.wrong, 1)
    three = oracle(tmp_path / "three", backends.wrong, 3)
    best = minimised(one)
    assert targets(best) == ["tanh"]
    assert minimised(three).key == best.key
    assert set(psutil.Process().children()) <= before, "nothing is left at work"
    assert one.reruns == len(one.answers.known)
    assert one.answers.known.keys() <= three.answers.known.keys()
    for key, tally in one.answers.known.items():
        assert three.answers.known[key].outcome.signature == tally.outcome.signature
        assert three.answers.known[key].runs == 1
    lines = list(read_answers(three.answers.path))
    assert {line.question for line in lines} == three.answers.known.keys()


def test_jobs_that_share_cores_have_more_time_before_they_hang(tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    limits = []
    for jobs in (1, cores, 3 * cores):
        by = oracle(tmp_path / str(jobs), backends.right, jobs)
        by.tighten(1.5)
        limits.append(by.limits.seconds)
    assert limits == [15.0, 15.0, 45.0]


# -- repeats --------------------------------------------------------------------------------


def meeting(folder: Path, count: int) -> Callable[..., Any]:
    """Return a backend that compiles only once this many processes are compiling."""

    def meet(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        (folder / f"here-{os.getpid()}").touch()
        while len(list(folder.glob("here-*"))) < count:
            time.sleep(0.05)
        return module.forward

    return meet


def test_the_passes_that_a_question_needs_run_at_the_same_time(tmp_path: Path) -> None:
    asking = oracle(tmp_path, meeting(tmp_path, 3), 3)
    asking.passes_needed = 3
    assert asked(asking, question(2)) is Kind.OK
    assert asking.reruns == 3


def test_a_rate_is_measured_at_the_same_time_and_takes_no_more_runs(tmp_path: Path) -> None:
    asking = oracle(tmp_path, meeting(tmp_path, 3), 2)
    about = question(2)
    (tmp_path / "here-0").touch()
    assert asking.rate(about.candidate, about.toggles, Outcome(Kind.WRONG), 3) == Rate(0, 3)
    assert asking.reruns == 4


def test_repeats_that_a_failure_makes_unnecessary_are_ended(tmp_path: Path) -> None:
    before = set(psutil.Process().children())

    def first_fails(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Wrong at once in one process, and slow in the others."""
        try:
            (tmp_path / "first").touch(exist_ok=False)
        except FileExistsError:
            time.sleep(60.0)
        return backends.wrong(module, inputs)

    asking = oracle(tmp_path, first_fails, 2)
    asking.passes_needed = 4
    asking.failure = Outcome(Kind.WRONG, "forward", "forward | wrong value")
    assert asked(asking, question(5)) is Kind.WRONG
    assert asking.reruns == 2
    assert set(psutil.Process().children()) <= before
