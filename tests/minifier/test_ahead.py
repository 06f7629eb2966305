"""Candidates that run at the same time: begun before they are asked for, with the same answers."""

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
from captured import captured
from torch import fx

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.gate import Toggles
from tcdebug.minifier.case import Case
from tcdebug.minifier.isolation import Limits
from tcdebug.minifier.oracle import Answers, Budget, BudgetUsed, Oracle, Question
from tcdebug.minifier.outcome import Kind
from tcdebug.minifier.search import first_bad


def oracle(folder: Path, backend: Any, jobs: int, reruns: int = 100) -> Oracle:
    folder.mkdir(exist_ok=True)
    return Oracle(
        backends.target(backend), EventLog(folder), Answers(folder / "answers.jsonl"),
        Limits(60.0), Budget(reruns=reruns), jobs=jobs,
    )  # fmt: skip


def takes_its_time(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles in three seconds."""
    time.sleep(3.0)
    return module.forward


def question(size: int) -> Question:
    """About a case of this many nodes, the fourth of which is tanh."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for k in range(size):
            x = x.tanh() if k == 3 else x + k
        return x

    torch._dynamo.reset()
    return Question(captured(chain, torch.ones(3)), Toggles(), f"{size} nodes")


def asked(by: Oracle, about: Question) -> Kind:
    return by.ask(about.case, about.toggles, about.purpose).kind


def test_candidates_run_at_the_same_time(tmp_path: Path) -> None:
    def meet(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles only once another process does, too."""
        (tmp_path / f"here-{os.getpid()}").touch()
        while len(list(tmp_path.glob("here-*"))) < 2:
            time.sleep(0.05)
        return module.forward

    ahead = oracle(tmp_path, meet, 2)
    questions = [question(2), question(3)]
    ahead.ask_ahead(questions)
    assert [asked(ahead, q) for q in questions] == [Kind.OK, Kind.OK]
    assert ahead.reruns == 2


def test_no_more_run_than_there_are_jobs(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    ahead = oracle(tmp_path, takes_its_time, 2)
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


def test_what_is_asked_for_has_room(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, takes_its_time, 2)
    ahead.ask_ahead([question(1), question(2)])
    assert asked(ahead, question(3)) is Kind.OK
    assert ahead.reruns == 3
    ahead.ask_ahead(())


def test_what_is_known_is_not_begun(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.right, 2)
    asked(ahead, question(1))
    ahead.ask_ahead([question(1)])
    assert ahead.reruns == 1


def test_a_used_up_budget_begins_nothing(tmp_path: Path) -> None:
    ahead = oracle(tmp_path, backends.right, 2, reruns=1)
    ahead.ask_ahead([question(1), question(2)])
    assert asked(ahead, question(1)) is Kind.OK
    with pytest.raises(BudgetUsed):
        asked(ahead, question(2))


def searched(by: Oracle, cases: Sequence[Case]) -> int:
    """The first case that fails, with both questions that may come next begun ahead."""
    low, high = -1, len(cases) - 1

    def about(k: int) -> Question:
        return Question(cases[k], Toggles(), f"case {k}")

    def bad(middle: int) -> bool:
        nonlocal low, high
        next_ones = {middle, (low + middle) // 2, (middle + high) // 2} - {low, high}
        by.ask_ahead([about(k) for k in sorted(next_ones, key=lambda k: k != middle)])
        found = asked(by, about(middle)) is not Kind.OK
        low, high = (low, middle) if found else (middle, high)
        return found

    return first_bad(low, high, bad)


def test_a_search_finds_the_same_with_many_jobs_as_with_one(tmp_path: Path) -> None:
    cases = [question(size).case for size in range(1, 10)]
    one = oracle(tmp_path / "one", backends.wrong, 1)
    three = oracle(tmp_path / "three", backends.wrong, 3)
    assert searched(one, cases) == searched(three, cases) == 3
    three.ask_ahead(())
    shared = one.answers.known.keys() & three.answers.known.keys()
    assert len(shared) == len(one.answers.known) <= len(three.answers.known)
    assert all(one.answers.known[k] == three.answers.known[k] for k in shared)
