"""The reducer: all that remains is a planted trigger."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import user_programs
from block_graphs import PLANTED, SIZES, block_graph, holds
from captured import captured, targets

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.replay import run
from tcdebug.minifier.reduction.reducer import OPERATORS, Reducer

PROGRAMS = user_programs.arguments()


class Asked:
    """Interesting cases run and contain all triggers, each of which feeds the next."""

    def __init__(self, *triggers: str) -> None:
        self.triggers = triggers
        self.cases: list[Case] = []

    def __call__(self, case: Case, purpose: str) -> bool:
        assert purpose
        self.cases.append(case)
        try:
            run(load(case, "candidate.py"), case)
        except RuntimeError:
            return False
        names = [n for n in targets(case) if n in self.triggers]
        return all(names.count(t) >= self.triggers.count(t) for t in self.triggers)


def reduced(name: str, *triggers: str) -> tuple[Case, Asked]:
    function, args = PROGRAMS[name]
    asked = Asked(*triggers)
    case = captured(function, *args, dynamic=name == "sized")
    return Reducer(case, EventLog(None)).run(asked), asked


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_trigger_remains_of_every_program(name: str) -> None:
    best, asked = reduced(name, "tanh")
    assert targets(best) == ["tanh"]
    assert len(best.inputs) == 1
    assert best.inputs[0].recipe is not None
    assert not best.inputs[0].value.requires_grad
    assert best.inputs[0].dynamic == ()
    assert len(asked.cases) <= 20
    assert len({case.key for case in asked.cases}) == len(asked.cases)


def test_two_triggers_remain() -> None:
    best, _ = reduced("chain", "exp", "sigmoid")
    assert targets(best) == ["exp", "sigmoid"]


def test_a_trigger_in_the_middle_remains() -> None:
    best, _ = reduced("layers", "matmul")
    assert targets(best) == ["matmul"]
    assert sorted(tuple(i.value.shape) for i in best.inputs) == [(1, 1), (1, 1)]


def test_a_gradient_that_matters_is_kept() -> None:
    function, args = PROGRAMS["layers"]
    case = captured(function, *args)

    def interesting(candidate: Case, purpose: str) -> bool:
        results = run(load(candidate, "candidate.py"), candidate)
        return "tanh" in targets(candidate) and len(results.gradients) > 0

    best = Reducer(case, EventLog(None)).run(interesting)
    assert targets(best) == ["tanh"]
    assert [i.value.requires_grad for i in best.inputs] == [True]


def test_values_that_matter_are_kept() -> None:
    case = captured(lambda x: (x * 1).tanh().sum(), torch.tensor([1.0, float("nan")]))

    def interesting(candidate: Case, purpose: str) -> bool:
        return any(bool(torch.isnan(i.value).any()) for i in candidate.inputs)

    best = Reducer(case, EventLog(None)).run(interesting)
    assert best.size == 1
    assert torch.isnan(best.inputs[0].value[1])
    assert best.inputs[0].recipe is None


def test_the_case_is_unchanged_if_nothing_is_interesting() -> None:
    function, args = PROGRAMS["chain"]
    case = captured(function, *args)
    best = Reducer(case, EventLog(None)).run(lambda candidate, purpose: False)
    assert best.key == case.key


@pytest.mark.parametrize("name", ["chain", "32 nodes"])
def test_no_more_questions_are_asked_in_a_round_than_expected_if_nothing_can_be_removed(
    name: str, tmp_path: Path
) -> None:
    function, args = PROGRAMS["chain"]
    case = captured(function, *args) if name == "chain" else block_graph(32)
    asked: list[str] = []

    def interesting(candidate: Case, purpose: str) -> bool:
        asked.append(purpose)
        return False

    Reducer(case, EventLog(tmp_path, own=True)).run(interesting)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    expected = [r["data"] for r in map(json.loads, lines) if r["event"] == "minify.plan"]
    first = {r.name for r in OPERATORS}
    questions = sum(purpose in first for purpose in asked)
    assert expected[0]["reduction"] == "truncate"
    assert questions <= expected[0]["expected"] <= 3 * questions
    assert len(asked) - questions <= max(
        e["expected"] for e in expected if e["reduction"] not in first
    )


def test_the_best_case_survives_an_interruption() -> None:
    function, args = PROGRAMS["chain"]
    case = captured(function, *args)
    asked = Asked("tanh")

    def interrupted(candidate: Case, purpose: str) -> bool:
        if len(asked.cases) == 3:
            raise KeyboardInterrupt
        return asked(candidate, purpose)

    reducer = Reducer(case, EventLog(None))
    with pytest.raises(KeyboardInterrupt):
        reducer.run(interrupted)
    assert reducer.best.size < case.size
    assert "tanh" in targets(reducer.best)


# -- how often it asks ----------------------------------------------------------------------


def asks(size: int, planted: tuple[str, ...]) -> tuple[Case, int, int]:
    """Return the remaining graph, the questions that removed operators, and all others."""
    removing = {r.name for r in OPERATORS}
    asked: list[tuple[str, str]] = []

    def interesting(case: Case, purpose: str) -> bool:
        asked.append((case.key, purpose))
        return holds(case, planted)

    best = Reducer(block_graph(size), EventLog(None)).run(interesting)
    assert len({key for key, _ in asked}) == len(asked), "nothing is asked twice"
    operators = sum(1 for _, purpose in asked if purpose in removing)
    return best, operators, len(asked) - operators


@pytest.mark.parametrize("size", SIZES)
def test_one_operator_is_found_in_a_binary_search_and_two_asks(size: int) -> None:
    best, operators, details = asks(size, ("relu",))
    assert targets(best) == ["relu"]
    assert [tuple(v.shape) for v in best.values()] == [(1, 1)]
    assert operators <= math.log2(size) + 3
    assert details <= 4


@pytest.mark.sampled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("planted", PLANTED[1:], ids=" ".join)
def test_three_operators_are_found_in_three_binary_searches(
    size: int, planted: tuple[str, ...]
) -> None:
    best, operators, details = asks(size, planted)
    assert sorted(targets(best)) == sorted(planted)
    assert operators <= 3 * math.log2(size) + 10
    assert operators <= 45
    assert details <= 8


def test_operators_that_feed_each_other_stay_connected() -> None:
    def chained(case: Case, purpose: str) -> bool:
        """A tanh of a sum of a product."""
        for node in case.calls:
            names = []
            while node.op.startswith("call"):
                names.append(node.target if isinstance(node.target, str) else node.target.__name__)
                node = node.all_input_nodes[0]
            if names[:3] == ["tanh", "add", "matmul"]:
                return True
        return False

    asked = []
    reducer = Reducer(block_graph(491), EventLog(None))
    best = reducer.run(lambda c, p: asked.append(p) or chained(c, p))
    assert targets(best) == ["matmul", "add", "tanh"]
    assert len(asked) <= 40


def test_a_bug_inside_a_checkpoint_leaves_no_checkpoint() -> None:
    best, asked = reduced("checkpointed", "sin")
    assert targets(best) == ["sin"]
    assert best.attributes() == {}
    assert len(asked.cases) <= 20
