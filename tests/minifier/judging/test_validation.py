"""The oracle `validation`: eager raises, and compiled code accepts the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from torch import fx

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.judging.validation import judge_validation
from tcdebug.minifier.repros.candidate import Candidates
from tcdebug.minifier.subjects.judges import keeper_of

ACCEPTED = "forward | accepted | NotImplementedError | <name> not implemented for <name>"


def flags(function: Callable[..., Any] = torch.ceil) -> Case:
    """Return a case that eager rejects: the ceiling of booleans."""
    case = captured(function, torch.ones(3))
    return case.with_inputs({i.name: CaseInput(i.name, torch.ones(3) > 0) for i in case.inputs})


def accepting(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Copies what it should round."""
    for node in module.graph.nodes:
        if node.target is torch.ceil:
            node.target = torch.clone
    module.recompile()
    return module.forward


def judged(backend: Any, case: Case, folder: Path) -> Outcome:
    name = str(folder / "case.py")
    return judge_validation(case, backends.target(backend), Toggles(), lambda phase: None, name)


def test_accepted_inputs_are_wrong_and_named_by_the_exception(tmp_path: Path) -> None:
    outcome = judged(accepting, flags(), tmp_path)
    assert (outcome.kind, outcome.signature) == (Kind.WRONG, ACCEPTED)
    assert outcome.message.startswith("eager raises NotImplementedError: ")


@pytest.mark.parametrize(
    ("backend", "case"),
    [
        (backends.right, flags()),
        (accepting, captured(torch.ceil, torch.ones(3))),
    ],
    ids=["both raise", "both accept"],
)
def test_inputs_that_both_reject_or_both_accept_pass(
    backend: Any, case: Case, tmp_path: Path
) -> None:
    assert judged(backend, case, tmp_path).kind is Kind.OK


def test_another_exception_is_another_failure(tmp_path: Path) -> None:
    outcome = judged(backends.raises, flags(lambda x: torch.tanh(torch.ceil(x))), tmp_path)
    assert outcome.kind is Kind.EXCEPTION
    assert outcome.message.startswith("Planted: ")


@pytest.mark.parametrize(("oracle", "passes"), [("validation", Kind.OK), ("default", Kind.INVALID)])
def test_a_case_that_both_reject_keeps_its_stages_only_where_rejecting_is_judged(
    oracle: str, passes: Kind, tmp_path: Path
) -> None:
    target = backends.target(backends.right)
    candidates = Candidates(target, Ambient.current())
    judge = keeper_of(candidates, tmp_path, tmp_path / "kept", Toggles(), oracle)
    assert judge(flags(), Toggles(), lambda phase: None).kind is passes
