"""A step of inductor whose check raises is a unit, as one that raises when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._inductor.codegen.cpp import TilingSelect
from torch._inductor.codegen.wrapper import AllocateLine
from torch._inductor.fx_passes.joint_graph import patterns
from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern
from torch._inductor.scheduler import Scheduler

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

SINE = torch.ops.aten.sin.default
NO_KERNELS = ("lower", "fuse", "codegen")


def raises(*of_a_match: Any, **options: Any) -> bool:
    raise RuntimeError("not all inputs found")


def halves_a_sine(*of_a_match: Any) -> None:
    raises()


def matches(match: Any) -> bool:
    return True


@contextmanager
def planted(check: Callable[..., bool]) -> Iterator[Any]:
    """Plant a pattern that cannot rewrite a sine, and yield its entry."""
    found = patterns.patterns["call_function", SINE]
    register_graph_pattern(CallFunction(SINE, Arg()), extra_check=check, pass_dict=patterns)(
        halves_a_sine
    )
    try:
        yield found[-1]
    finally:
        found.pop()


def compiled(
    program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *off: str
) -> tuple[torch.Tensor | str, list[str]]:
    """Return the result, or what was raised, and the units of all decisions."""
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        try:
            result: torch.Tensor | str = torch.compile(program)(x)
        except Exception as problem:
            result = str(problem)
    return result, [d.unit for d in gate.decisions]


def compiled_without(*off: str) -> tuple[torch.Tensor | str, list[str]]:
    """Return the result, or what was raised, and the patterns that were asked about."""
    torch._dynamo.reset()
    x = torch.zeros(4)
    with inductor.switched(Toggles.parse([*NO_KERNELS, *off]), EventLog(None)) as gate:
        try:
            result: torch.Tensor | str = torch.compile(lambda x: x.sin() + 1)(x)
        except Exception as problem:
            result = str(problem)
    return result, [d.unit for d in gate.decisions if d.unit.endswith("halves_a_sine")]


@pytest.mark.parametrize("check", [raises, matches], ids=["check", "rewrite"])
def test_a_program_compiles_without_a_pattern_whose_check_or_rewrite_raises(
    check: Callable[..., bool],
) -> None:
    with planted(check) as entry:
        result, asked = compiled_without()
        assert "not all inputs found" in str(result)
        assert asked == ["joint.halves_a_sine"]
        result, asked = compiled_without("joint.halves_a_sine")
        assert isinstance(result, torch.Tensor)
        assert result.tolist() == [1.0] * 4
        assert asked == ["joint.halves_a_sine"]
        assert entry.extra_check is check


def test_a_program_compiles_without_vectors_if_the_choice_of_tiles_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TilingSelect, "_select_tiling_indices", raises)
    result, asked = compiled(lambda x: x.exp() + 1, torch.zeros(17))
    assert "not all inputs found" in str(result)
    assert asked[-1] == "codegen.vectorize"
    result, asked = compiled(lambda x: x.exp() + 1, torch.zeros(17), "codegen.vectorize")
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [2.0] * 17
    assert asked.count("codegen.vectorize") == 1


def two_reductions(x: torch.Tensor) -> torch.Tensor:
    return (x.sum(0) + 1).amax() + (x @ x).relu().sum() + (x @ x @ x).exp().sum()


@pytest.mark.parametrize(
    ("owner", "name", "unit"),
    [
        (Scheduler, "can_fuse", "fuse"),
        pytest.param(AllocateLine, "should_reuse_buffer", "memory.reuse", marks=pytest.mark.slow),
    ],
)
def test_a_program_compiles_without_a_fusion_or_reuse_whose_rules_raise(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, unit: str
) -> None:
    monkeypatch.setattr(owner, name, raises)
    x = torch.eye(4)
    result, asked = compiled(two_reductions, x)
    assert "not all inputs found" in str(result)
    assert asked[-1].startswith(unit)
    result, _ = compiled(two_reductions, x, unit)
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, two_reductions(x))
