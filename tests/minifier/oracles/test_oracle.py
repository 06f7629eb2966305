"""The oracle: each question once, answers on disk, a budget, and every way a child can end."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import backends
import msgspec
import pytest
import torch
from captured import captured

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.surroundings import surroundings
from tcdebug.minifier.judging.endings import outcome_of
from tcdebug.minifier.oracles import hang_limit
from tcdebug.minifier.oracles import oracle as oracle_module
from tcdebug.minifier.oracles.answers import Answer, Answers, read_answers
from tcdebug.minifier.oracles.budget import Budget, BudgetUsed, Spending
from tcdebug.minifier.oracles.candidate_oracle import CandidateOracle
from tcdebug.minifier.oracles.hang_limit import Duration, HangLimit
from tcdebug.minifier.oracles.oracle import NoHang, Oracle
from tcdebug.minifier.oracles.other_failures import OtherFailures
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.process import Ended, Limits
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.search.repeats import Rate, Tally
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle
from tcdebug.minifier.targets import Target
from tcdebug.minifier.targets.backends import Backend

OFF = Toggles.parse(["fuse"])
OK = Outcome(Kind.OK)
HANGS = Outcome(Kind.HANG, "compile", "compile | hang")
CRASH = Outcome(
    Kind.CRASH,
    "compile",
    "compile | SIGSEGV",
    "ended by SIGSEGV",
    (Decision("fuse.inline", "a->b", "0123456789", 3, True),),
    1.5,
    0.5,
)


# -- answers --------------------------------------------------------------------------------


def test_answers_are_kept_across_processes(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    Answers(path).add("one", Tally(CRASH, 3, 2))
    known = Answers(path).known
    assert known == {"one": Tally(CRASH, 3, 2)}
    outcome = known["one"].outcome
    assert (outcome.decisions, outcome.seconds) == (CRASH.decisions, 1.5)


def test_a_torn_line_is_skipped_and_later_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    answers = Answers(path)
    answers.add("one", Tally(CRASH))
    answers.add("two", Tally(OK))
    path.write_bytes(path.read_bytes()[:-20])
    again = Answers(path)
    assert list(again.known) == ["one"]
    again.add("three", Tally(OK))
    assert list(Answers(path).known) == ["one", "three"]


def test_answers_of_an_earlier_run_are_known(tmp_path: Path) -> None:
    earlier, now = tmp_path / "earlier.jsonl", tmp_path / "now.jsonl"
    Answers(earlier).add("one", Tally(OK))
    answers = Answers(now, earlier)
    answers.add("two", Tally(CRASH))
    assert list(Answers(now, earlier).known) == ["one", "two"]
    assert list(Answers(earlier).known) == ["one"]
    assert list(Answers(now, tmp_path / "missing.jsonl").known) == ["one", "two"]


def test_the_last_answer_to_a_question_counts(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [Answer("one", Tally(OK)), Answer("one", Tally(CRASH, 2, 1))]
    path.write_bytes(b"\n".join(msgspec.json.encode(a) for a in lines) + b"\n")
    assert Answers(path).known == {"one": Tally(CRASH, 2, 1)}
    assert [a.question for a in read_answers(path)] == ["one"]


# -- asking ---------------------------------------------------------------------------------


def oracle(
    folder: Path,
    target: Target,
    limits: Limits | None = None,
    budget: Budget | None = None,
    jobs: int = 1,
    **changes: Any,
) -> Oracle[Case]:
    limits = limits or Limits(30.0)
    subject = GraphSubject(target, EventLog(folder), memory=limits.memory, **changes)
    return graph_oracle(subject, limits, budget or Budget(), jobs)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the data of all events of a kind."""
    records = [msgspec.json.decode(li) for p in folder.glob("events*") for li in p.open("rb")]
    return [r["data"] for r in records if r["event"] == kind]


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
    limits = Limits(2.0 if backend is backends.hangs else 60.0)
    asked = oracle(tmp_path, backends.target(backend), limits=limits)
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
    candidates = events(tmp_path, "candidate")
    assert [(c["purpose"], c["cached"]) for c in candidates] == [("first", False), ("again", True)]


@pytest.mark.parametrize(("jobs", "started"), [(1, 1), (2, 2)])
def test_an_idle_process_starts_on_the_question_that_follows_a_search(
    jobs: int, started: int, tmp_path: Path
) -> None:
    asked = oracle(tmp_path, backends.target(backends.wrong), jobs=jobs)
    case, whole = tanh_case(), tanh_case(5)
    then = Question(whole, OFF, "what follows")
    about = CandidateOracle(asked, case)
    about.searched(lambda ask: ask(Toggles(), "the search"), then=[then])
    assert asked.reruns == started
    assert asked.answer(then).kind is Kind.WRONG
    assert asked.reruns == 2


def test_an_answer_on_disk_is_not_asked_for_again(tmp_path: Path) -> None:
    case = tanh_case()
    first = oracle(tmp_path, backends.target(backends.wrong)).ask(case, Toggles(), "first")
    again = oracle(tmp_path, backends.target(backends.wrong))
    assert again.ask(case, Toggles(), "after a restart") == first
    assert again.reruns == 0


def test_different_cases_toggles_and_targets_are_different_questions(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"))
    other = oracle(tmp_path, replace(backends.target("eager"), options={"a": 1}))
    small, large = tanh_case(3), tanh_case(4)
    questions = [
        asked.key(Question(small, Toggles(), "")),
        asked.key(Question(large, Toggles(), "")),
        asked.key(Question(small, OFF, "")),
        other.key(Question(small, Toggles(), "")),
    ]
    assert len(set(questions)) == 4
    assert asked.key(Question(tanh_case(3), Toggles.parse(["fuse"]), "")) == questions[2]


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


def test_reserved_seconds_are_left_for_later_steps(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"), budget=Budget(seconds=1000.0))
    with asked.spending.reserving(1000.0), pytest.raises(BudgetUsed):
        asked.ask(tanh_case(), Toggles(), "no time for this step")
    assert asked.ask(tanh_case(), Toggles(), "time for the next").kind is Kind.OK


def test_a_run_that_the_budget_ends_is_not_a_hang_and_is_not_remembered(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backends.hangs), budget=Budget(seconds=0.8))
    with pytest.raises(BudgetUsed):
        asked.ask(tanh_case(), Toggles(), "at work when the budget ends")
    assert 0.8 <= asked.spending.seconds < 10.0
    assert asked.answers.known == {}


def test_the_graphs_of_a_script_share_one_budget(tmp_path: Path) -> None:
    first = oracle(tmp_path, backends.target("eager"), budget=Budget(reruns=1))
    second = replace(first, first_limits=first.limits)
    first.ask(tanh_case(), Toggles(), "the only run")
    with pytest.raises(BudgetUsed):
        second.ask(tanh_case(4), Toggles(), "of another graph")


def test_a_candidate_may_take_ten_times_as_long_as_the_first(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target("eager"), limits=Limits(120.0, 1 << 30))
    asked.tighten(3.0)
    assert asked.limits == Limits(30.0, 1 << 30)
    asked.tighten(100.0)
    assert asked.limits == Limits(30.0, 1 << 30)


@pytest.mark.parametrize(("name", "least"), [("tcdebug", 5.0), ("eager", 15.0), ("inductor", 15.0)])
def test_no_candidate_has_less_time_than_a_build_on_a_busy_machine(
    name: str, least: float, tmp_path: Path
) -> None:
    """For other compilers: a first run that crashed at once had not built its kernels."""
    asked = oracle(tmp_path, backends.target(name), limits=Limits(120.0, 1 << 30))
    asked.tighten(0.001)
    assert asked.limits == Limits(least, 1 << 30)


def test_a_long_run_that_ended_gives_other_runs_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("tcdebug.minifier.subjects.graph")
    monkeypatch.setattr(module, "LEAST_OF_OTHERS", 4.0)
    slow = backends.target(backends.taking(1.5))
    asked = oracle(tmp_path, slow, limits=Limits(120.0, 1 << 30))
    asked.tighten(0.001)
    assert asked.ask(tanh_case(), Toggles(), "slow, and ends").kind is Kind.OK
    assert 4.5 < asked.limits.seconds < 120.0


@pytest.mark.parametrize(("failure", "passes"), [(CRASH, True), (HANGS, False)])
def test_a_whole_that_passes_after_an_early_failure_has_the_time_of_a_first_run(
    failure: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, passes: bool
) -> None:
    module = importlib.import_module("tcdebug.minifier.subjects.graph")
    monkeypatch.setattr(module, "LEAST_OF_OTHERS", 0.5)
    asked = oracle(tmp_path, backends.target(backends.taking(1.5)), limits=Limits(120.0))
    asked.failure = failure
    asked.tighten(0.001)
    question = Question(tanh_case(), OFF, "the whole graph without it")
    assert asked.answer(question).signature.endswith("hang")
    assert (asked.answer_unhurried(question).kind is Kind.OK) is passes


def test_the_slowest_run_that_ended_gives_other_runs_three_times_as_long() -> None:
    limit = HangLimit(Limits(120.0, 1 << 30), 5.0, 1)
    limit.tighten(0.001)
    assert limit.limits == Limits(5.0, 1 << 30)
    limit.loosen(Duration(4.0, 4.0))
    assert limit.limits == Limits(12.0, 1 << 30)
    limit.loosen(Duration(1.0, 1.0))
    assert limit.limits == Limits(12.0, 1 << 30)
    limit.loosen(Duration(100.0, 1.0))
    assert limit.limits == Limits(120.0, 1 << 30)


def test_a_candidate_of_a_hang_may_be_silent_as_long_as_runs_that_ended() -> None:
    limit = HangLimit(Limits(120.0, None), 15.0, 1)
    limit.tighten_for_hangs(Duration(1.0, 0.2))
    assert limit.limits == Limits(15.0, None, 5.0)
    limit.loosen(Duration(4.0, 3.0))
    assert limit.limits == Limits(15.0, None, 9.0)
    slower = HangLimit(Limits(120.0, None), 15.0, 1)
    slower.tighten_for_hangs(Duration(4.0, 2.0))
    assert slower.limits == Limits(40.0, None, 20.0)


def test_a_hang_counts_only_if_it_had_as_much_time_as_a_run_has_now() -> None:
    long, silent = (replace(HANGS, seconds=15.0), replace(HANGS, silence=5.0, silenced=True))
    limit = HangLimit(Limits(15.0, None), 15.0, 1)
    assert limit.still_counts(long)
    assert not limit.still_counts(silent)
    limit.tighten_for_hangs(Duration(1.0, 0.2))
    assert limit.still_counts(silent)
    limit.loosen(Duration(2.0, 2.0))
    assert not limit.still_counts(silent)
    assert limit.still_counts(replace(silent, endless=True))


# -- a first run that seems to hang ---------------------------------------------------------


def test_the_search_for_a_hang_begins_before_its_first_run_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "SUSPICIOUS", 0.5)
    asked = oracle(tmp_path, backends.target(backends.hangs), limits=Limits(5.0))
    suspected = asked.ask_first(tanh_case(), Toggles(), "first")
    assert (suspected.kind, suspected.signature) == (Kind.HANG, "compile | hang")
    assert suspected.message.startswith("no sign of progress of the compile for ")
    hang = asked.await_suspect()
    assert hang is not None
    assert (hang.signature, hang.silenced) == ("compile | hang", False)
    assert hang.seconds >= 5.0
    assert asked.reruns == 1


@pytest.mark.parametrize(("limit", "budget", "hung"), [(2.0, 3.0, True), (60.0, 3.0, False)])
def test_a_first_run_that_used_up_its_time_hung_though_the_budget_has_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: float, budget: float, *, hung: bool
) -> None:
    monkeypatch.setattr(oracle_module, "SUSPICIOUS", 0.5)
    asked = oracle(tmp_path, backends.target(backends.hangs), limits=Limits(limit))
    asked.spending = Spending(Budget(seconds=budget))
    assert asked.ask_first(tanh_case(), Toggles(), "first").kind is Kind.HANG
    time.sleep(max(0.0, asked.spending.seconds_left) + 0.1)
    hang = asked.await_suspect()
    asked.drop_suspect()
    assert (hang is not None) is hung


def test_a_first_run_that_is_suspected_to_hang_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "SUSPICIOUS", 2.0)
    monkeypatch.setattr(hang_limit, "LEAST_SILENCE", 1.5)
    asked = oracle(tmp_path, backends.target(backends.hangs), limits=Limits(7.0))
    suspected = asked.ask_first(tanh_case(), Toggles(), "first")
    asked.tighten_for_hangs(replace(OK, seconds=0.01))
    assert asked.rate(tanh_case(), Toggles(), suspected, 2) == Rate(2, 2)
    assert asked.reruns == 3
    assert asked.await_suspect() is not None
    assert asked.rate(tanh_case(), Toggles(), suspected, 2) == Rate(2, 2)
    assert asked.reruns == 3


def test_a_slow_compile_that_seemed_to_hang_is_not_a_hang_nor_are_later_ones_suspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = backends.target(backends.taking(1.5))
    monkeypatch.setattr(oracle_module, "SUSPICIOUS", 0.5)
    asked = oracle(tmp_path, slow, limits=Limits(120.0))
    assert asked.ask_first(tanh_case(), Toggles(), "first").kind is Kind.HANG
    asked.tighten_for_hangs(replace(OK, seconds=0.1))
    with pytest.raises(NoHang) as ended:
        asked.rate(tanh_case(), Toggles(), HANGS, 4)
    assert ended.value.outcome.kind is Kind.OK
    later = oracle(tmp_path, slow)
    assert later.ask_first(tanh_case(), Toggles(), "known").kind is Kind.OK
    assert later.reruns == 0
    assert asked.ask_first(tanh_case(5), Toggles(), "another graph").kind is Kind.OK


def test_what_the_criteria_exclude_is_not_suspected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_module, "SUSPICIOUS", 0.5)
    limits, wanted = Limits(3.0), Criteria("nan")
    asked = oracle(tmp_path, backends.target(backends.hangs), limits, criteria=wanted)
    assert asked.ask_first(tanh_case(), Toggles(), "first").kind is Kind.INVALID
    assert asked.await_suspect() is None


def test_decisions_of_a_child_are_read_from_its_events_even_if_the_script_disables_logs(
    tmp_path: Path,
) -> None:
    target = replace(backends.target("tcdebug"), run_dir=str(tmp_path), options={"log": False})
    asked = oracle(tmp_path, target)
    found = asked.ask(tanh_case(), Toggles(), "which decisions")
    assert found.kind is Kind.OK
    units = {d.unit for d in found.decisions}
    assert "lower.aten.tanh.default" in units
    off = asked.ask(tanh_case(), Toggles.parse(["lower"]), "lowering off")
    allowed = {d.unit: d.allowed for d in off.decisions}
    assert not allowed["lower.aten.tanh.default"]


# -- flaky failures -------------------------------------------------------------------------


def sometimes(folder: Path, *fails: bool) -> Backend:
    """Return a backend whose compiles are wrong or not in this order; the last one repeats."""
    counter = folder / "compiles"
    counter.touch()

    def compiler(module: Any, inputs: Any) -> Any:
        run = len(counter.read_text())
        counter.write_text("x" * (run + 1))
        return (backends.wrong if fails[min(run, len(fails) - 1)] else backends.right)(
            module, inputs
        )

    return Backend(compiler, "sometimes")


def test_a_pass_is_believed_after_enough_passes(tmp_path: Path) -> None:
    asked = oracle(tmp_path, sometimes(tmp_path, False))
    case = tanh_case()
    assert asked.ask(case, Toggles(), "one pass").kind is Kind.OK
    asked.passes_needed = 3
    assert asked.ask(case, Toggles(), "two more").kind is Kind.OK
    assert asked.reruns == 3
    assert asked.ask(case, Toggles(), "known").kind is Kind.OK
    assert asked.reruns == 3
    assert not asked.contradicted


def test_a_failure_after_a_pass_is_the_answer_and_a_contradiction(tmp_path: Path) -> None:
    asked = oracle(tmp_path, sometimes(tmp_path, False, True, False))
    asked.passes_needed = 5
    assert asked.ask(tanh_case(), Toggles(), "fails the second time").kind is Kind.WRONG
    assert asked.reruns == 2
    assert asked.contradicted


def test_a_resumed_run_keeps_the_passes(tmp_path: Path) -> None:
    case, target = tanh_case(), sometimes(tmp_path, False)
    oracle(tmp_path, target).ask(case, Toggles(), "one pass")
    again = oracle(tmp_path, target)
    again.passes_needed = 2
    assert again.ask(case, Toggles(), "one more").kind is Kind.OK
    assert again.reruns == 1


def test_how_often_a_case_fails_again(tmp_path: Path) -> None:
    asked = oracle(tmp_path, sometimes(tmp_path, True, True, False, True, False))
    case = tanh_case()
    failure = asked.ask(case, Toggles(), "fails")
    assert asked.rate(case, Toggles(), failure, 2) == Rate(1, 2)
    assert asked.rate(case, Toggles(), failure, 4) == Rate(2, 4)
    assert asked.reruns == 5
    assert asked.contradicted
    assert asked.ask(case, Toggles(), "known to fail") == failure


# -- other failures -------------------------------------------------------------------------


def test_a_failure_of_another_kind_is_kept_as_a_separate_case(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backends.raises))
    asked.failure = Outcome(Kind.WRONG, "forward", "forward | wrong value")
    large = captured(lambda x: (x + 1).tanh() * 2, torch.ones(3))
    found = asked.ask(large, Toggles(), "raises instead")
    assert found.kind is Kind.EXCEPTION
    asked.ask(tanh_case(), OFF, "a smaller one")
    asked.ask(captured(lambda x: x.tanh() - x * 2, torch.ones(3)), OFF, "a larger one")
    path = tmp_path / "other" / "0" / "repro.py"
    assert asked.others.scripts == {found.signature: path}
    text = path.read_text()
    assert "'kind': 'exception', 'class': 'Planted'" in text
    assert "2 nodes" in text
    assert "off=['fuse']," in text
    (first, second) = events(tmp_path, "failure.other")
    assert (first["nodes"], second["nodes"], second["path"]) == (3, 2, str(path))


def test_the_failure_that_is_searched_for_is_not_another_failure(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backends.wrong))
    asked.failure = asked.ask(tanh_case(), Toggles(), "fails")
    asked.ask(tanh_case(4), Toggles(), "fails in the same way")
    assert asked.others.scripts == {}
    assert not (tmp_path / "other").exists()


def test_what_fails_without_backward_as_one_node_is_not_another_failure(tmp_path: Path) -> None:
    asked = oracle(tmp_path, backends.target(backends.raises))
    asked.failure = Outcome(Kind.WRONG, "forward", "forward | wrong value")
    without = Toggles.parse(["autograd.backward"])
    assert asked.ask(tanh_case(), without, "raises instead").kind is Kind.EXCEPTION
    assert asked.others.scripts == {}


def test_no_more_than_sixteen_other_failures_are_kept(tmp_path: Path) -> None:
    others = OtherFailures(tmp_path, EventLog(None))
    candidates = Candidates(backends.target("eager"), Ambient())
    case = tanh_case()
    for k in range(20):
        crash = replace(CRASH, signature=f"{k} | SIGSEGV")
        others.keep(crash, 2, partial(candidates.write, case, Toggles(), crash))
    assert sorted(int(p.name) for p in tmp_path.iterdir()) == list(range(16))
    assert list(others.scripts)[-1] == "15 | SIGSEGV"


def test_a_failure_outside_the_criteria_is_not_a_failure(tmp_path: Path) -> None:
    wanted = Criteria(fail_regex="wrong nan|SIGABRT")
    asked = oracle(tmp_path, backends.target(backends.wrong), criteria=wanted)
    found = asked.ask(tanh_case(), Toggles(), "fails, but not like that")
    assert not found.failed
    assert found.message.startswith("fails, but not in a way that counts: output 0: ")
    assert list(asked.others.scripts) == ["forward | wrong value"]
    wider = oracle(tmp_path, backends.target(backends.wrong), criteria=Criteria(fail_regex="wrong"))
    assert wider.ask(tanh_case(), Toggles(), "known, and wanted now").kind is Kind.WRONG
    assert wider.reruns == 0


# -- what an answer depends on --------------------------------------------------------------


def test_a_hang_under_a_shorter_limit_is_run_again(tmp_path: Path) -> None:
    case, target = tanh_case(), backends.target(backends.right)
    short = oracle(tmp_path, target, limits=Limits(1.5))
    key = short.key(Question(case, Toggles(), ""))
    short.answers.add(key, Tally(replace(HANGS, seconds=1.5)))
    again = oracle(tmp_path, target, limits=Limits(1.5))
    assert again.ask(case, Toggles(), "known").kind is Kind.HANG
    longer = oracle(tmp_path, target, limits=Limits(30.0))
    assert longer.key(Question(case, Toggles(), "")) == key
    assert longer.ask(case, Toggles(), "more time").kind is Kind.OK
    assert (again.reruns, longer.reruns) == (0, 1)


def test_different_surroundings_make_a_different_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, target = tanh_case(), backends.target("eager")

    def question(**changes: Any) -> str:
        return oracle(tmp_path, target, **changes).key(Question(case, Toggles(), ""))

    first = question()
    assert question() == first
    assert question(place="graph 1") != first
    assert question(limits=Limits(30.0, 1 << 30)) != first
    with torch.no_grad():
        assert question() != first
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    assert question() != first


def test_an_edited_source_makes_a_different_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_own.py").write_text("factor = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("users_own")
    before = surroundings()
    assert surroundings() == before
    (tmp_path / "users_own.py").write_text("factor = 30\n")
    assert surroundings() != before


# -- endings --------------------------------------------------------------------------------


def ended(**changes: Any) -> Ended:
    plain = Ended(None, "compile", None, 0, False, False, pid=1, seconds=2.0, cpu_seconds=1.0)
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (ended(answer=msgspec.json.encode(CRASH)), CRASH),
        (
            ended(timed_out=True),
            Outcome(Kind.HANG, "compile", "compile | hang", "no end of the compile after 2 s"),
        ),
        (
            ended(timed_out=True, phase="eager"),
            Outcome(Kind.INVALID, "eager", "eager | hang", "no end after 2 s"),
        ),
        (
            ended(over_memory=True, phase="forward"),
            Outcome(Kind.KILLED, "forward", "forward | out of memory", "over the memory limit"),
        ),
        (
            ended(signal=11, phase="backward"),
            Outcome(Kind.CRASH, "backward", "backward | SIGSEGV", "ended by SIGSEGV"),
        ),
        (
            ended(signal=6, phase="eager"),
            Outcome(Kind.INVALID, "eager", "eager | SIGABRT", "ended by SIGABRT"),
        ),
        (
            ended(),
            Outcome(Kind.CRASH, "compile", "compile | exit", "the process ended without an answer"),
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
def test_every_way_a_child_can_end_is_an_outcome(ending: Ended, outcome: Outcome) -> None:
    assert outcome_of(ending) == outcome
