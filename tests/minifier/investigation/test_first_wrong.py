"""A wrong value is minimised from the operator that one run of all values names, if it fails alone.

The backends compute single operators wrongly, under conditions that real faults depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from backends import target
from captured import captured, targets
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import Criteria
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.branch import Branch
from tcdebug.minifier.investigation.findings import FailureFindings, FailureFound
from tcdebug.minifier.investigation.investigate import Investigation
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.oracles.budget import Budget
from tcdebug.minifier.oracles.oracle import Oracle
from tcdebug.minifier.oracles.question import Question
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.first_wrong import returned_values
from tcdebug.minifier.reduction.loop import ReductionLoop
from tcdebug.minifier.reduction.reducer import GRAPHS
from tcdebug.minifier.subjects.graph import GraphSubject, graph_oracle

ALL, ALONE, NAMED = "all values as results", "first wrong value", "named call"


class HereOracle(Oracle[Case]):
    """Runs candidates in this process, and keeps the purposes of the questions."""

    purposes: list[str]
    outcomes: dict[str, Outcome]

    def answer(self, question: Question[Case]) -> Outcome:
        """Judge a candidate, once."""
        self.purposes.append(question.purpose)
        case, subject = question.candidate, self.runner
        assert isinstance(subject, GraphSubject)
        if case.key not in self.outcomes:
            self.outcomes[case.key] = judge(
                case, subject.target, question.toggles, lambda phase: None, "candidate.py"
            )
        return self.outcomes[case.key]


class OperatorsOnly(GraphSubject):
    """A graph of which only operators are removed."""

    def reducer(self, candidate: Case, log: EventLog) -> Any:
        """Return a reducer that changes no other detail than gradients."""
        return ReductionLoop(candidate, replace(GRAPHS, fine=(DropGradients(),)), log)


def minimised(folder: Path, backend: Callable[..., Any], case: Case) -> tuple[Case, list[str]]:
    """Return the smallest case that fails, and the purposes of all questions in order."""
    log = EventLog(None)
    subject = OperatorsOnly(target(backend), EventLog(folder))
    plain = graph_oracle(subject, Limits(60.0), Budget())
    oracle = HereOracle(
        subject, log, plain.answers, plain.limits, plain.spending, plain.criteria, plain.others
    )
    oracle.purposes, oracle.outcomes = [], {}
    failure = oracle.failure = oracle.ask(case, Toggles(), "the graph")
    assert failure.failed
    findings = FailureFindings(FailureFound(case, failure, 0), Toggles())
    branch = Branch(failure, Toggles(), case)
    Investigation(findings, subject, oracle, log)._minimise(branch)
    assert not findings.notes
    return branch.best, oracle.purposes


def replacing(
    name: str, instead: Callable[..., Any], where: Callable[[fx.Node], bool] = lambda node: True
) -> Callable[..., Any]:
    """Return a backend that calls `instead` for an operator where a condition holds."""

    def wrong(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        for node in module.graph.nodes:
            called = node.target if isinstance(node.target, str) else node.target.__name__
            if node.op.startswith("call") and called == name and where(node):
                node.op, node.target = "call_function", instead
        module.recompile()
        return module.forward

    return wrong


def _returned(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _of_a_call(node: fx.Node) -> bool:
    return any(n.op.startswith("call") for n in node.all_input_nodes)


def _more(x: Tensor, y: float) -> Tensor:
    return x.add_(y + 1)


def _other_index(x: Tensor, index: int, value: float) -> None:
    x[index + 1] = value


def _last_index(x: Tensor, dim: int) -> Tensor:
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim)


def chain(x: Tensor) -> Tensor:
    y = torch.tanh((x + 1).cos() * 2)
    return torch.softmax(y.exp(), -1).cos()


def undefined(x: Tensor) -> Tensor:
    y = torch.log(x - 100) * 2
    return torch.tanh(x * 3).nan_to_num() + y.nan_to_num()


def drawn(x: Tensor) -> Tensor:
    return torch.tanh(torch.rand_like(x) + x).exp() * 2


def halves(x: Tensor) -> Tensor:
    left, right = torch.split(x * 2, 4, -1)
    return torch.tanh(right).cos() + left


def trained(x: Tensor) -> Tensor:
    return torch.tanh(x.cos() * 2).exp().sum()


def updated(x: Tensor) -> None:
    x.mul_(torch.tanh((x + 1).cos() * 2).exp())


def indices(x: Tensor) -> Tensor:
    return torch.argmax((x * 2).cos(), -1) + 1


X = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (chain, X),
        (undefined, X),
        (drawn, X),
        (halves, X),
        (trained, X.clone().requires_grad_()),
        (updated, X.clone()),
    ],
)
def test_the_operator_with_the_first_wrong_value_is_found_in_two_runs(
    tmp_path: Path, function: Callable[..., Tensor], x: Tensor
) -> None:
    best, purposes = minimised(tmp_path, replacing("tanh", torch.sigmoid), captured(function, x))
    assert targets(best) == ["tanh"]
    assert purposes[1:3] == [ALL, ALONE]
    assert not {"truncate", "cut_nodes"} & set(purposes)


def raising(name: str, about: str = "") -> Callable[..., Any]:
    """Return a backend that raises if it gets an operator, while it holds that or another node."""

    def broken(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        calls = {n.target.__name__: n for n in module.graph.nodes if n.op == "call_function"}
        if name in calls:
            node = calls.get(about, calls[name])
            raise ValueError(f"planted in {name}" if node else "")
        return module.forward

    return broken


def test_the_operator_that_an_exception_is_about_is_found_in_one_run(tmp_path: Path) -> None:
    best, purposes = minimised(tmp_path, raising("tanh"), captured(trained, X.clone()))
    assert targets(best) == ["tanh"]
    assert purposes[1] == NAMED
    assert not {"truncate", "cut_nodes"} & set(purposes)


def test_an_operator_that_does_not_fail_alone_is_only_a_guess(tmp_path: Path) -> None:
    best, purposes = minimised(tmp_path, raising("tanh", "mul"), captured(chain, X))
    assert targets(best) == ["tanh"]
    assert purposes[1] == NAMED
    assert "truncate" in purposes


def test_an_exception_in_the_trace_of_backward_names_no_operator(tmp_path: Path) -> None:
    def raises(*args: Any) -> Any:
        raise ValueError("planted")

    decompositions = {torch.ops.aten.tanh_backward.default: raises}

    traced = aot_autograd(fw_compiler=lambda g, _: g.forward, decompositions=decompositions)
    case = captured(trained, X.clone().requires_grad_())
    best, purposes = minimised(tmp_path, traced, case)
    assert targets(best) == ["tanh"]
    assert purposes[1] == "truncate"


def test_a_wrong_index_is_found_if_no_float_is_wrong(tmp_path: Path) -> None:
    case = captured(indices, X)
    best, purposes = minimised(tmp_path, replacing("argmax", torch.argmin), case)
    assert targets(best) == ["argmax"]
    assert purposes[1:3] == [ALL, ALONE]


def test_another_index_among_equal_numbers_is_not_the_first_wrong_value(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.round()
        largest = torch.gather(y, 1, torch.argmax(y, 1).unsqueeze(1))
        return torch.tanh(largest).exp() * 2

    def both(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        replacing("argmax", _last_index)(module, inputs)
        return replacing("tanh", torch.sigmoid)(module, inputs)

    best, _ = minimised(tmp_path, both, captured(function, X / 4))
    assert targets(best) == ["tanh"]


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (lambda node: not _returned(node), ["tanh", "exp"]),
        (_of_a_call, ["sin", "tanh"]),
    ],
    ids=["unless its value is a result", "where it is fused with its operand"],
)
def test_a_value_that_is_wrong_only_in_a_fused_kernel_is_truncated_to(
    tmp_path: Path, where: Callable[[fx.Node], bool], left: list[str]
) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.softmax(torch.tanh(torch.sin(x + 1)).exp(), -1)

    backend = replacing("tanh", torch.sigmoid, where)
    best, purposes = minimised(tmp_path, backend, captured(function, X))
    assert targets(best) == left
    assert purposes[1] == ALL
    assert purposes.count("truncate") > 1


@pytest.mark.parametrize(
    ("name", "instead", "left"),
    [
        ("add_", _more, ["add_"]),
        ("setitem", _other_index, ["mul", "setitem"]),
        ("sin", torch.cos, ["sin"]),
    ],
)
def test_wrong_updates_in_place_and_through_a_view_are_minimised_to(
    tmp_path: Path, name: str, instead: Callable[..., Any], left: list[str]
) -> None:
    def function(x: Tensor) -> Tensor:
        y = (x * 2).sin()
        y.add_(1)
        y.view(-1)[0] = 3.0
        return y.exp() * 2

    best, _ = minimised(tmp_path, replacing(name, instead), captured(function, X))
    assert targets(best) == left


def test_graphs_with_unwritten_memory_small_ones_and_transforms_are_not_asked_for_all_values() -> (
    None
):
    def unwritten(x: Tensor) -> Tensor:
        room = torch.empty(16)
        room[:8] = x[0]
        return (room[:8] * 2).tanh()

    def vmapped(x: Tensor) -> Tensor:
        return torch.vmap(lambda row: (row * 2).tanh().exp().sum())(x)

    def small(x: Tensor) -> Tensor:
        return (x * 2).tanh().exp()

    assert returned_values(captured(small, X)) is None
    assert returned_values(captured(unwritten, X)) is None
    assert returned_values(captured(vmapped, X)) is None


def _wrong(output: int | None) -> Outcome:
    return Outcome(Kind.WRONG, "forward", "forward | wrong value", output=output)


@pytest.mark.parametrize(
    ("oracle", "failure", "asked"),
    [
        ("default", _wrong(2), True),
        ("layout", _wrong(2), False),
        ("default", _wrong(None), False),
    ],
)
def test_all_values_are_asked_for_only_where_values_of_forward_were_compared(
    tmp_path: Path, oracle: str, failure: Outcome, asked: bool
) -> None:
    subject = GraphSubject(target("eager"), EventLog(tmp_path), Criteria(oracle))
    assert (subject.returned_values(captured(chain, X), failure) is not None) is asked
