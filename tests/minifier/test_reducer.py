"""The reducer: a planted trigger is all that is left."""

from __future__ import annotations

import pytest
import torch
import user_programs
from captured import captured, targets

from tcdebug.compiler.event_log import EventLog
from tcdebug.minifier.case import Case
from tcdebug.minifier.reducer import Reducer
from tcdebug.minifier.replay import run
from tcdebug.minifier.source import load

PROGRAMS = user_programs.arguments()


class Asked:
    """Interesting is a case that runs and holds all the triggers, one fed by the one before."""

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
    return Reducer(case, asked, EventLog(None)).run(), asked


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_trigger_is_left_of_every_program(name: str) -> None:
    best, asked = reduced(name, "tanh")
    assert targets(best) == ["tanh"]
    assert len(best.inputs) == 1
    assert best.inputs[0].recipe is not None
    assert not best.inputs[0].value.requires_grad
    assert best.inputs[0].dynamic == ()
    assert len(asked.cases) <= 30


def test_two_triggers_are_left() -> None:
    best, _ = reduced("chain", "exp", "sigmoid")
    assert targets(best) == ["exp", "sigmoid"]


def test_what_is_in_the_middle_is_left() -> None:
    best, _ = reduced("layers", "matmul")
    assert targets(best) == ["matmul"]
    assert sorted(tuple(i.value.shape) for i in best.inputs) == [(3, 4), (4, 4)]


def test_a_gradient_that_matters_is_kept() -> None:
    function, args = PROGRAMS["layers"]
    case = captured(function, *args)

    def interesting(candidate: Case, purpose: str) -> bool:
        results = run(load(candidate, "candidate.py"), candidate)
        return "tanh" in targets(candidate) and len(results.gradients) > 0

    best = Reducer(case, interesting, EventLog(None)).run()
    assert targets(best) == ["tanh"]
    assert [i.value.requires_grad for i in best.inputs] == [True]


def test_values_that_matter_are_kept() -> None:
    case = captured(lambda x: (x * 1).tanh().sum(), torch.tensor([1.0, float("nan")]))

    def interesting(candidate: Case, purpose: str) -> bool:
        return any(bool(torch.isnan(i.value).any()) for i in candidate.inputs)

    best = Reducer(case, interesting, EventLog(None)).run()
    assert best.size == 1
    assert torch.isnan(best.inputs[0].value[1])
    assert best.inputs[0].recipe is None


def test_nothing_interesting_leaves_the_case() -> None:
    function, args = PROGRAMS["chain"]
    case = captured(function, *args)
    best = Reducer(case, lambda candidate, purpose: False, EventLog(None)).run()
    assert best is case


def test_the_best_so_far_outlives_an_interruption() -> None:
    function, args = PROGRAMS["chain"]
    case = captured(function, *args)
    asked = Asked("tanh")

    def interrupted(candidate: Case, purpose: str) -> bool:
        if len(asked.cases) == 3:
            raise KeyboardInterrupt
        return asked(candidate, purpose)

    reducer = Reducer(case, interrupted, EventLog(None))
    with pytest.raises(KeyboardInterrupt):
        reducer.run()
    assert reducer.best.size < case.size
    assert "tanh" in targets(reducer.best)
