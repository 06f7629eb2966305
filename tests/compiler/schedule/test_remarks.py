"""Remarks on fusion: what was fused, what was not and why, and the origins of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import f32
from stages import Captured, capture

from tcdebug.compiler.codegen.wrapper.provenance import origins
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.schedule.remarks import Located, remarks


def said(captured: Captured, verdict: str, off: tuple[str, ...] = ()) -> list[Located]:
    """The remarks with a verdict on the only graph."""
    (schedule,) = captured.schedules
    gate = Gate(Toggles.parse(off))
    gate.allows("fuse.vertical", "a+b")
    gate.allows("fuse.inline", "sin->mul")
    return [f for f in remarks(schedule, gate) if f.remark.verdict == verdict]


def missed(function: Callable[..., Any], *inputs: Any, off: tuple[str, ...] = ()) -> list[str]:
    """The reasons why nodes were not fused."""
    captured = capture(function, *inputs, toggles=Toggles.parse(off))
    return [found.remark.message for found in said(captured, "missed", off)]


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The values of a row are needed in a column."""
    s = torch.softmax(x, -1)
    return s.t() + s


def through_a_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A sum before an ATen call is needed after it."""
    y = x.exp()
    return (y @ w) * y.sum()


def test_a_transposed_read_prevents_fusion() -> None:
    said_of_exp, said_of_sum = missed(transposed, f32(8, 8))
    assert said_of_exp == (
        "not fused: exp and add: add reads exp through a transposed index; not inlined: it is "
        "read several times, and 9 operations and 2 loads are too much to repeat"
    )
    assert "not inlined" not in said_of_sum


def test_a_step_that_must_run_between_two_kernels_is_named() -> None:
    (message,) = missed(through_a_product, f32(8, 8), f32(8, 8))
    assert message == "not fused: sum_1_sum and mul: mm must run between them"


def test_a_denial_by_the_gate_is_the_reason() -> None:
    messages = missed(lambda x: (x + 1).sin() * 2, f32(4, 5), off=("fuse",))
    assert len(messages) == 2
    assert all("the gate denied it" in m for m in messages)
    assert [m.partition("not inlined: ")[2] for m in messages] == ["", "the gate denied it"]


def test_a_fused_kernel_saves_the_bytes_that_are_never_in_memory() -> None:
    (found,) = said(capture(lambda x: torch.softmax(x, -1), f32(4, 8)), "passed")
    assert found.remark.moved == 2 * 4 * (4 * 8 + 4 + 4)
    assert found.location is not None
    assert found.location.filename == __file__


@pytest.mark.parametrize("function", [transposed, lambda x: (x + 1).sum()])
def test_every_kernel_is_analysed(function: Callable[..., Any]) -> None:
    captured = capture(function, f32(8, 8))
    assert len(said(captured, "analysis")) == len(captured.schedules[0].kernels())


def test_the_origins_of_a_kernel_include_inlined_nodes() -> None:
    captured = capture(lambda x: (torch.relu(x) + 1).sum(), f32(8, 8))
    (rows,) = origins(captured.schedules[0], captured.lowered[0]).values()
    assert [(aten, op) for _, aten, op, _ in rows] == [
        ("sum_1", "aten.sum.default"), ("add", "aten.add.Tensor"), ("relu", "aten.relu.default"),
    ]  # fmt: skip
    assert {where.rpartition(":")[0] for *_, where in rows} == {__file__}
