"""The oracle: each question once, answers on disk, a budget, and every ending of a child."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import backends
import msgspec
import pytest
import torch
from captured import captured

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.gate import Decision, Toggles
from tcdebug.minifier.case import Case
from tcdebug.minifier.isolation import Ended, Limits
from tcdebug.minifier.oracle import (
    Answer,
    Answers,
    Budget,
    BudgetUsed,
    Oracle,
    outcome_of,
    read_answers,
)
from tcdebug.minifier.outcome import Kind, Outcome
from tcdebug.minifier.targets import Target

OFF = Toggles.parse(["fuse"])
CRASH = Outcome(
    Kind.CRASH,
    "compile",
    "compile | SIGSEGV",
    "ended by signal 11",
    (Decision("fuse.inline", "a->b", "0123456789", 3, True),),
    1.5,
    0.5,
)


# -- answers --------------------------------------------------------------------------------


def test_answers_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    Answers(path).add("one", CRASH)
    known = Answers(path).known
    assert known == {"one": CRASH}
    assert (known["one"].decisions, known["one"].seconds) == (CRASH.decisions, 1.5)


def test_a_torn_line_is_left_out_and_stops_no_later_one(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    answers = Answers(path)
    answers.add("one", CRASH)
    answers.add("two", Outcome(Kind.OK))
    path.write_bytes(path.read_bytes()[:-20])
    again = Answers(path)
    assert list(again.known) == ["one"]
    again.add("three", Outcome(Kind.OK))
    assert list(Answers(path).known) == ["one", "three"]


def test_answers_of_an_earlier_run_are_known(tmp_path: Path) -> None:
    earlier, now = tmp_path / "earlier.jsonl", tmp_path / "now.jsonl"
    Answers(earlier).add("one", Outcome(Kind.OK))
    answers = Answers(now, earlier)
    answers.add("two", CRASH)
    assert list(Answers(now, earlier).known) == ["one", "two"]
    assert list(Answers(earlier).known) == ["one"]
    assert list(Answers(now, tmp_path / "missing.jsonl").known) == ["one", "two"]


def test_the_last_answer_to_a_question_counts(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [Answer("one", Outcome(Kind.OK)), Answer("one", CRASH)]
    path.write_bytes(b"\n".join(msgspec.json.encode(a) for a in lines) + b"\n")
    assert Answers(path).known == {"one": CRASH}
    assert [a.question for a in read_answers(path)] == ["one"]


# -- asking ---------------------------------------------------------------------------------


def oracle(folder: Path, target: Target, **changes: Any) -> Oracle:
    given: dict[str, Any] = {"limits": Limits(30.0), "budget": Budget(), **changes}
    return Oracle(target, EventLog(folder), Answers(folder / "answers.jsonl"), **given)


def tanh_case(*sizes: int) -> Case:
    return captured(lambda x: (x + 1).tanh(), torch.ones(sizes or (3,)))


@pytest.mark.parametrize(
    ("backend", "outcome"),
    [
        (backends.right, Outcome(Kind.OK)),
        (backends.wrong, (Kind.WRONG, "forward", "forward | wrong value")),
        (backends.crashes, (Kind.CRASH, "forward", "forward | SIGSEGV")),
        (backends.hangs, (Kind.HANG, "compile", "compile | hang")),
    ],
)
def test_a_candidate_runs_in_a_child(backend: Any, outcome: Any, tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backend), limits=Limits(3.0))
    found = asked.ask(tanh_case(), Toggles(), "whether it fails")
    if isinstance(outcome, Outcome):
        assert found == outcome
    else:
        assert (found.kind, found.phase, found.signature) == outcome
    assert found.seconds > 0
    assert asked.reruns == 1


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backends.wrong))
    case = tanh_case()
    first = asked.ask(case, Toggles(), "first")
    assert asked.ask(case, Toggles(), "again") == first
    assert (asked.asked, asked.reruns) == (2, 1)
    events = [msgspec.json.decode(li) for li in next(tmp_path.glob("events*")).open("rb")]
    candidates = [e["data"] for e in events if e["event"] == "candidate"]
    assert [(c["purpose"], c["cached"]) for c in candidates] == [("first", False), ("again", True)]


def test_an_answer_on_disk_is_not_asked_for_again(tmp_path: Path) -> None:
    case = tanh_case()
    first = oracle(tmp_path, backends.target(backends.wrong)).ask(case, Toggles(), "first")
    again = oracle(tmp_path, backends.target(backends.wrong))
    assert again.ask(case, Toggles(), "after a restart") == first
    assert again.reruns == 0


def test_other_cases_toggles_and_targets_are_other_questions(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"))
    other = oracle(tmp_path, replace(backends.target("eager"), options={"a": 1}))
    small, large = tanh_case(3), tanh_case(4)
    questions = [
        asked._question(small, Toggles()),
        asked._question(large, Toggles()),
        asked._question(small, OFF),
        other._question(small, Toggles()),
    ]
    assert len(set(questions)) == 4
    assert asked._question(tanh_case(3), Toggles.parse(["fuse"])) == questions[2]


def test_the_budget_of_reruns_ends_a_search(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"), budget=Budget(reruns=1))
    case = tanh_case()
    asked.ask(case, Toggles(), "the only one")
    with pytest.raises(BudgetUsed):
        asked.ask(case, OFF, "one too many")
    assert asked.ask(case, Toggles(), "known already").kind is Kind.OK
    assert asked.reruns == 1


def test_the_budget_of_seconds_ends_a_search(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"), budget=Budget(seconds=0.0))
    with pytest.raises(BudgetUsed):
        asked.ask(tanh_case(), Toggles(), "no time")


def test_a_candidate_may_take_ten_times_as_long_as_the_first(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"), limits=Limits(120.0, 1 << 30))
    asked.tighten(3.0)
    assert asked.limits == Limits(30.0, 1 << 30)
    asked.tighten(0.001)
    assert asked.limits == Limits(5.0, 1 << 30)
    asked.tighten(100.0)
    assert asked.limits == Limits(5.0, 1 << 30)


def test_decisions_of_a_child_are_read_from_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TCDEBUG_LOG")
    target = replace(backends.target("tcdebug"), run_dir=str(tmp_path))
    asked = oracle(tmp_path, target)
    found = asked.ask(tanh_case(), Toggles(), "which decisions")
    assert found.kind is Kind.OK
    units = {d.unit for d in found.decisions}
    assert "lower.aten.tanh.default" in units
    off = asked.ask(tanh_case(), Toggles.parse(["lower"]), "lowering off")
    allowed = {d.unit: d.allowed for d in off.decisions}
    assert not allowed["lower.aten.tanh.default"]


# -- endings --------------------------------------------------------------------------------


def ended(**changes: Any) -> Ended:
    plain = Ended(None, "compile", 0, False, False, pid=1, seconds=2.0, cpu_seconds=1.0)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (ended(answer=msgspec.json.encode(CRASH)), CRASH),
        (
            ended(timed_out=True),
            Outcome(Kind.HANG, "compile", "compile | hang", "no end after 2 s"),
        ),
        (
            ended(timed_out=True, phase="eager"),
            Outcome(Kind.INVALID, "eager", "eager | hang", "no end after 2 s"),
        ),
        (
            ended(over_memory=True, phase="forward"),
            Outcome(
                Kind.KILLED, "forward", "forward | out of memory", "over the memory limit"
            ),
        ),
        (
            ended(signal=11, phase="backward"),
            Outcome(Kind.CRASH, "backward", "backward | SIGSEGV", "ended by signal 11"),
        ),
        (
            ended(signal=6, phase="eager"),
            Outcome(Kind.INVALID, "eager", "eager | SIGABRT", "ended by signal 6"),
        ),
        (
            ended(),
            Outcome(
                Kind.CRASH, "compile", "compile | exit", "the process ended without an answer"
            ),
        ),
        (
            ended(phase=""),
            Outcome(Kind.INVALID, "", " | exit", "the process ended without an answer"),
        ),
        (
            ended(phase="capture", timed_out=True),
            Outcome(Kind.INVALID, "capture", "capture | hang", "no end after 2 s"),
        ),
    ],
)
def test_every_ending_of_a_child_is_an_outcome(ending: Ended, outcome: Outcome) -> None:
    assert outcome_of(ending) == outcome
