"""Graphs that contain vmap, grad and jvp are reduced like any others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured, targets
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.source import load
from tcdebug.minifier.judging.replay import run
from tcdebug.minifier.reduction.operators.surgery import node_values
from tcdebug.minifier.reduction.operators.transforms import is_well_formed
from tcdebug.minifier.reduction.reducer import Reducer
from tcdebug.minifier.reduction.trial import can_run, observed


def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.tanh((x @ w + 1).relu() * 2).sum()


def curve(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.sum()).exp().tanh()


def events_of(folder: Path) -> str:
    """The events that a log wrote to a folder."""
    return "".join(file.read_text() for file in folder.glob("events*.jsonl"))


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap of grad": lambda x: vmap(grad(loss), in_dims=(None, 0))(torch.ones(3, 3), x),
    "vmap of vmap": lambda x: vmap(vmap(lambda y: (y * 2 + 1).tanh().exp()))(x),
    "jacfwd": lambda x: jacfwd(curve)(x[0]),
    "jacrev": lambda x: jacrev(curve)(x[0]),
    "hessian": lambda x: hessian(lambda y: curve(y).sum())(x[0]),
    "jacrev of grad": lambda x: jacrev(grad(lambda y: curve(y).sum()))(x[0]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trigger_inside_transforms_is_all_that_remains(name: str, tmp_path: Path) -> None:
    case = captured(PROGRAMS[name], torch.rand(4, 3))
    assert case.size >= 14
    log = EventLog(tmp_path, own=True)

    def interesting(candidate: Case, purpose: str) -> bool:
        assert is_well_formed(candidate.graph), purpose
        if "tanh" not in targets(candidate):
            return False
        try:
            run(load(candidate, str(tmp_path / "candidate.py")), candidate)
        except (RuntimeError, TypeError):  # the second, if several values leave as one
            return False
        return True

    small = Reducer(case, log).run(interesting)
    assert targets(small) == ["tanh"]
    if torch.version.cuda is None:
        assert '"fallback"' not in events_of(tmp_path)  # no edit raised


@pytest.mark.skipif(torch.version.cuda is not None, reason="no backward in a process that forks")
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_around_transforms_are_those_of_eager(name: str) -> None:
    """A graph with gradients of its own has other values, or none, if gradients are off."""
    case = captured(PROGRAMS[name], torch.rand(4, 3))
    values = node_values(case)
    (result,) = case.graph.output_node().all_input_nodes
    expected = PROGRAMS[name](*case.values())
    assert expected.abs().sum() > 0
    torch.testing.assert_close(values[result.name], expected)
    assert torch.equal(values[result.name] * 1, values[result.name])  # outside any transform
    assert observed(case).values[result.name].shape == expected.shape
    assert can_run(case, captured(lambda x: x + 1, torch.rand(4, 3)))


def test_an_unbalanced_transform_is_not_well_formed() -> None:
    case = captured(lambda x: vmap(lambda y: y.sin() + 1)(x), torch.rand(4, 3))
    assert is_well_formed(case.graph)
    for name in ("_vmap_decrement_nesting", "_vmap_increment_nesting"):
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(case.graph, {}))
        (marker,) = [n for n in graph.nodes if getattr(n.target, "__name__", "") == name]
        graph.erase_node(marker)
        assert not is_well_formed(graph)


def test_values_that_outlive_their_transform_are_reduced_too(tmp_path: Path) -> None:
    """`torch.func.vjp` returns a function that holds values of its transform."""

    def function(x: torch.Tensor) -> Any:
        return torch.func.vjp(lambda y: (y.sin() + 1).sum(), x)

    case = captured(function, torch.rand(4, requires_grad=True))
    assert not is_well_formed(case.graph)
    log = EventLog(tmp_path, own=True)

    def small(wanted: Callable[[Case], bool]) -> list[str]:
        def interesting(candidate: Case, purpose: str) -> bool:
            run(load(candidate, str(tmp_path / "candidate.py")), candidate)
            return "sin" in targets(candidate) and wanted(candidate)

        return targets(Reducer(case, log).run(interesting))

    assert small(lambda candidate: True) == ["sin"]
    assert small(lambda candidate: not is_well_formed(candidate.graph)) == [
        "_grad_increment_nesting", "_wrap_for_grad", "set_inplace_requires_grad_allowed",
        "_set_tensor_requires_grad", "set_inplace_requires_grad_allowed",
        "sin", "_grad_decrement_nesting",
    ]  # fmt: skip
    events = events_of(tmp_path)
    assert "reduction" in events
    assert '"fallback"' not in events  # no edit raised


class Broken:
    """A reduction that raises."""

    name = "broken"
    ordered = False

    def edits(self, case: Case) -> list[str]:
        return ["one"]

    def apply(self, case: Case, edits: object) -> Case | None:
        raise KeyError("a fault")


@pytest.mark.parametrize("rehearsed", [False, True])
def test_a_fault_of_a_reduction_ends_only_that_reduction(rehearsed: bool, tmp_path: Path) -> None:
    case = captured(lambda x: x.sin(), torch.ones(2))
    log = EventLog(tmp_path, own=True)
    reducer, broken = Reducer(case, log), Broken()
    if rehearsed:
        reducer.rehearsal().reduce(broken, lambda candidate, purpose: True)
    for _ in range(2):
        reducer.reduce(broken, lambda candidate, purpose: True)
    assert reducer.best is case
    (line,) = [
        text for file in tmp_path.glob("events*.jsonl")
        for text in file.read_text().splitlines() if '"fallback"' in text
    ]  # fmt: skip
    assert "minimising goes without its step broken" in line
    assert "KeyError: 'a fault'" in line
