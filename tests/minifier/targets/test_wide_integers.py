"""Small integers that C++ computes as if they were `int` are units of code generation, by value."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.codegen.cpp import CppOverrides

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

UNIT = "codegen.wide_integers"


def added(x: torch.Tensor) -> torch.Tensor:
    negated = -x.abs()
    return torch.cat([negated, negated]).sum()


def compiled(x: torch.Tensor, *off: str) -> tuple[float, list[Decision]]:
    """Return the result, and the decisions on wide integers."""
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        result = torch.compile(added)(x)
    return result.item(), [d for d in gate.decisions if d.unit == UNIT]


def test_the_operation_that_widens_is_asked_about_and_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CppOverrides, "abs", staticmethod(lambda x: f"std::abs({x})"))
    x = torch.tensor([200, 200], dtype=torch.uint8)
    result, decisions = compiled(x)
    assert result == -800
    assert [d.subject.partition(" ")[0] for d in decisions] == ["std::abs"]
    result, decisions = compiled(x, UNIT)
    assert result == 224
    assert [d.allowed for d in decisions] == [False]


def test_wider_types_are_not_asked_about() -> None:
    assert compiled(torch.tensor([200, 200], dtype=torch.int32)) == (-800, [])
