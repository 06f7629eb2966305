"""What a graph updates of its module is an argument of its case, so that it is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.updates import updates_as_inputs
from tcdebug.minifier.cases.case import Case, from_captured
from tcdebug.minifier.cases.outcome import Kind
from tcdebug.minifier.judging.replay import judge
from tcdebug.minifier.targets.backends import Backend


def step_of(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Case:
    """Return the case of the compiled step of an optimizer of two parameters."""
    parameters = [torch.nn.Parameter(torch.ones(n)) for n in (2, 3)]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    cases: list[Case] = []

    def record(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            cases.append(from_captured(module, values))
            return module(*values)

        return call

    torch.compile(kind(parameters, 0.1, **options).step, backend=record)()
    (case,) = cases
    return case


@pytest.mark.parametrize(
    ("kind", "options", "tensors"),
    [(torch.optim.SGD, {}, 4), (torch.optim.Adam, {"foreach": True}, 10)],
)
def test_parameters_and_states_that_a_step_updates_are_arguments(
    kind: Callable[..., torch.optim.Optimizer], options: dict[str, Any], tensors: int
) -> None:
    case = step_of(kind, **options)
    assert len(case.inputs) == 2
    updating = updates_as_inputs(case)
    assert len(updating.inputs) == tensors
    assert not any(isinstance(v, torch.Tensor) for v in updating.attributes().values())


def test_a_wrong_update_of_a_parameter_is_a_wrong_result(tmp_path: Path) -> None:
    def half(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        for node in module.graph.nodes:
            if "alpha" in node.kwargs:
                node.update_kwarg("alpha", -0.05)
        module.recompile()
        return module.forward

    with torch.no_grad():
        case = updates_as_inputs(step_of(torch.optim.SGD, foreach=True))
        found = judge(
            case, Backend(half, "half"), Toggles(), lambda phase: None, str(tmp_path / "case.py")
        )
    assert (found.kind, found.signature) == (Kind.WRONG, "forward | wrong value")
    assert "instead of 0.899" in found.message


def test_attributes_that_are_only_read_stay_attributes() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(2))
            self.count = torch.nn.Parameter(torch.zeros(2, 2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count[0].add_(1)
            return x * self.scale

    module = fx.symbolic_trace(Scale())
    case = updates_as_inputs(from_captured(module, [torch.ones(2)]))
    assert [i.name for i in case.inputs] == ["x", "count"]
    assert list(case.attributes()) == ["scale"]
