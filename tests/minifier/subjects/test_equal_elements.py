"""Graphs that return positions of sorted elements, compared by those elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from captured import captured

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.processes.job import ORDER
from tcdebug.minifier.subjects.equal_elements import compared_by_elements
from tcdebug.minifier.subjects.explanations import explanations

GIVEN = torch.tensor([[2.0, 1.0, 1.0], [0.0, 0.0, 3.0]])
ONCE = [1, 1]


def largest(x: torch.Tensor) -> Any:
    return torch.topk(x, 2, dim=1).indices


@pytest.mark.parametrize(
    ("function", "results"),
    [
        (torch.argsort, [[[1.0, 1.0, 2.0], [0.0, 0.0, 3.0]], ONCE]),
        (lambda x: x.argsort(0), [[[0.0, 0.0, 1.0], [2.0, 1.0, 3.0]], [1, 1, 1]]),
        (largest, [[[2.0, 1.0], [3.0, 0.0]], ONCE]),
        (
            lambda x: torch.sort(x, descending=True)[1],
            [[[2.0, 1.0, 1.0], [3.0, 0.0, 0.0]], ONCE],
        ),
        (
            lambda x: torch.ops.aten.sort.default(x, 0)[1],
            [[[0.0, 0.0, 1.0], [2.0, 1.0, 3.0]], [1, 1, 1]],
        ),
    ],
)
def test_elements_are_returned_in_place_of_their_positions(
    function: Callable[[torch.Tensor], Any], results: list[Any]
) -> None:
    case = compared_by_elements(captured(function, GIVEN))
    assert case is not None
    assert [r.tolist() for r in case.module(GIVEN)] == results


def test_other_results_stay_where_they_are() -> None:
    case = compared_by_elements(captured(lambda x: (x.argsort(1), x + 1), GIVEN))
    assert case is not None
    elements, others, occurrences = case.module(GIVEN)
    assert elements.tolist() == [[1.0, 1.0, 2.0], [0.0, 0.0, 3.0]]
    assert (others.tolist(), occurrences.tolist()) == ((GIVEN + 1).tolist(), ONCE)


def test_a_sort_that_is_returned_as_a_whole_is_compared_by_its_elements_too() -> None:
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    graph.output((graph.call_function(torch.sort, (given,)),))
    whole = Case(torch.fx.GraphModule({}, graph), (CaseInput("x", GIVEN),))
    case = compared_by_elements(whole)
    assert case is not None
    elements = [[1.0, 1.0, 2.0], [0.0, 0.0, 3.0]]
    assert [r.tolist() for r in case.module(GIVEN)] == [elements, elements, ONCE]


def test_a_position_that_occurs_twice_is_counted() -> None:
    case = compared_by_elements(captured(torch.argsort, GIVEN))
    assert case is not None
    sort = next(n for n in case.module.graph.nodes if n.target is torch.argsort)
    sort.target = lambda x: torch.zeros(x.shape, dtype=torch.int64)
    case.module.recompile()
    assert case.module(GIVEN)[1].tolist() == [3, 3]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.argsort(x, stable=True),
        lambda x: x.sort(stable=True).indices,
        lambda x: x.sort().values,
        lambda x: x.gather(1, x.argsort(1)),
        torch.sin,
    ],
)
def test_a_stable_order_and_positions_that_are_not_returned_are_compared_as_they_are(
    function: Callable[[torch.Tensor], Any],
) -> None:
    assert compared_by_elements(captured(function, GIVEN)) is None


def test_the_explanation_of_an_unstable_sort_says_what_torch_promises() -> None:
    wrong = Outcome(Kind.WRONG, "forward", "forward | wrong value", "planted")
    case = captured(torch.argsort, GIVEN)
    (explanation,) = explanations(case, wrong)
    assert explanation.note == ORDER
    assert list(explanations(case, replace(wrong, kind=Kind.CRASH))) == []
