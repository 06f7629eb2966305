"""Views and buffers in the code that inductor writes around its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import ir
from torch._inductor.codegen.wrapper import PythonWrapperCodegen

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor

Results = tuple[torch.Tensor, ...]


def halves(x: torch.Tensor) -> Results:
    """A product of two views, and views of what ATen computes as results."""
    left, right = (x @ x).split(2, dim=1)
    return left.t() @ right, right, (x @ x).view(torch.int32)


def under(*off: str) -> tuple[Results, list[tuple[str, bool]]]:
    """Compile and run the program, and return the results and what views asked."""
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)) as gate:
        results = torch.compile(halves, fullgraph=True)(torch.arange(16.0).view(4, 4))
    return results, [(d.subject, d.allowed) for d in gate.decisions if d.unit == "memory.view"]


def right() -> Results:
    return halves(torch.arange(16.0).view(4, 4))


def no_offset_in_the_code(original: Callable[..., Any]) -> Callable[..., Any]:
    def codegen_reinterpret_view(
        self: Any, data: Any, size: Any, stride: Any, offset: Any, *rest: Any, **given: Any
    ) -> Any:
        return original(self, data, size, stride, offset - offset, *rest, **given)

    return codegen_reinterpret_view


def no_offset_in_arguments(original: Callable[..., Any]) -> Any:
    def realize_input(cls: Any, x: Any) -> Any:
        given = original(x)
        if not isinstance(given, ir.ReinterpretView):
            return given
        layout = given.layout
        first = ir.FixedLayout(layout.device, layout.dtype, layout.size, layout.stride)
        return ir.ReinterpretView(data=given.data, layout=first)

    return classmethod(realize_input)


@pytest.mark.parametrize("off", [[], ["memory.view"]])
def test_every_view_asks_and_results_are_those_of_eager(off: list[str]) -> None:
    results, asked = under(*off)
    assert len(asked) >= 3
    assert {allowed for _, allowed in asked} == {not off}
    for got, want in zip(results, right(), strict=True):
        assert torch.equal(got, want)
        assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())


def test_views_that_the_wrapper_writes_wrongly_are_right_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = no_offset_in_the_code(PythonWrapperCodegen.codegen_reinterpret_view)
    monkeypatch.setattr(PythonWrapperCodegen, "codegen_reinterpret_view", planted)
    assert not all(map(torch.equal, under()[0], right()))
    assert all(map(torch.equal, under("memory.view")[0], right()))


def test_a_view_that_is_passed_to_an_operator_wrongly_is_right_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = no_offset_in_arguments(ir.ExternKernel.realize_input)
    monkeypatch.setattr(ir.ExternKernel, "realize_input", planted)
    assert not torch.equal(under()[0][0], right()[0])
    assert torch.equal(under("memory.view")[0][0], right()[0])


def test_a_view_that_an_operator_writes_to_is_not_copied() -> None:
    def updated(x: torch.Tensor) -> torch.Tensor:
        x[1:].index_put_((torch.tensor([0]),), torch.ones(1, 4), accumulate=True)
        return x

    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(["memory.view"]), EventLog(None)):
        assert torch.equal(torch.compile(updated)(torch.zeros(3, 4)), updated(torch.zeros(3, 4)))


def parts(x: torch.Tensor) -> Results:
    """Views of what kernels compute, and of an input, as results."""
    y = (x * 2).relu() + 1
    wide = (x.unsqueeze(2) + torch.arange(3)).sum(1)
    return y[1:, 2:].t(), x.permute(1, 0)[2], wide.view(2, 6)[1:], (x @ x)[3].expand(2, 4)


def run_parts(*off: str) -> Results:
    torch._dynamo.reset()
    with inductor.switched(Toggles.parse(off), EventLog(None)):
        results: Results = torch.compile(parts)(torch.arange(16.0).view(4, 4))
    return results


@pytest.mark.parametrize("off", ["memory.view", "memory.allocation"])
def test_results_that_are_views_are_laid_out_as_in_eager(off: str) -> None:
    for got, want in zip(run_parts(off), parts(torch.arange(16.0).view(4, 4)), strict=True):
        assert torch.equal(got, want)
        assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())


def test_a_view_that_is_returned_wrongly_is_right_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = no_offset_in_arguments(ir.ExternKernel.realize_input)
    monkeypatch.setattr(ir.ExternKernel, "realize_input", planted)
    want = parts(torch.arange(16.0).view(4, 4))
    assert not torch.equal(run_parts()[0], want[0])
    assert all(map(torch.equal, run_parts("memory.view"), want))


def test_a_buffer_that_is_allocated_wrongly_is_right_with_the_unit_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = PythonWrapperCodegen.make_allocation

    def swapped(
        self: Any, name: Any, device: Any, dtype: Any, shape: Any, stride: Any, *rest: Any
    ) -> Any:
        return original(self, name, device, dtype, shape, stride[::-1], *rest)

    monkeypatch.setattr(PythonWrapperCodegen, "make_allocation", swapped)
    want = halves(torch.arange(16.0).view(4, 4))
    results, _ = under("memory.allocation")
    assert all(map(torch.equal, results, want))
    with torch._inductor.config.patch(size_asserts=False):
        assert not all(map(torch.equal, under()[0], want))
