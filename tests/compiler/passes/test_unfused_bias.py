"""Products with a bias on a GPU are split. The graphs hold fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import applied, ops
from stages import compile_with
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.passes.unfused_bias import unfused_bias

aten = torch.ops.aten

Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def graph(function: Program, device: str = "cuda") -> fx.GraphModule:
    with FakeTensorMode():
        x, w, b = (torch.empty(s, device=device) for s in ((4, 8), (8, 8), (8,)))
        return make_fx(function)(x, w, b)


def left(function: Program, device: str = "cuda") -> dict[str, int]:
    """The operators after the pass."""
    return ops(applied(unfused_bias, graph(function, device))[1])


def gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return aten.addmm.default(b, x, w).sin()


def test_a_bias_that_loops_can_add_is_split_off() -> None:
    assert left(gelu) == {"mm.default": 1, "add.Tensor": 1, "sin.default": 1}


def test_the_pass_can_be_switched_off() -> None:
    unit, module = "passes.unfused_bias", graph(gelu)
    stages = compile_with(Gate(Toggles.parse([unit]))).stages("inference")
    stages.run_passes("passes", module, {unit: unfused_bias})
    assert ops(module) == {"addmm.default": 1, "sin.default": 1}


def test_a_bias_on_a_cpu_is_not_split_off() -> None:
    assert left(gelu, "cpu") == {"addmm.default": 1, "sin.default": 1}


KEPT: dict[str, Program] = {
    "result": lambda x, w, b: aten.addmm.default(b, x, w),
    "also_a_result": lambda x, w, b: [(y := aten.addmm.default(b, x, w)), y.sin()],
    "to_a_product": lambda x, w, b: aten.mm.default(aten.addmm.default(b, x, w), w),
    "by_a_view_to_a_product": lambda x, w, b: aten.mm.default(
        aten.view.default(aten.addmm.default(b, x, w), [2, 16]).sin(),
        aten.view.default(aten.addmm.default(b, w, w), [16, 4]),
    ),
    "scaled": lambda x, w, b: aten.addmm.default(b, x, w, beta=2).sin(),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_product_that_must_be_in_memory_keeps_its_bias(name: str) -> None:
    assert left(KEPT[name])["addmm.default"] == 1


def sizes(dimensions: int) -> tuple[tuple[int, ...], ...]:
    """Those of an image, a weight and a bias."""
    return (2, 8, *[9] * dimensions), (8, 8, *[3] * dimensions), (8,)


def convolved(dimensions: int, *, transposed: bool = False) -> fx.GraphModule:
    """A convolution with a bias, which is the result of the graph."""
    ones, zeros = [1] * dimensions, [0] * dimensions

    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return aten.convolution.default(x, w, b, ones, zeros, ones, transposed, zeros, 1)

    with FakeTensorMode():
        x, w, b = (torch.empty(s, device="cuda") for s in sizes(dimensions))
        return make_fx(function)(x, w, b)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_bias_of_any_convolution_is_split_off(dimensions: int, transposed: bool) -> None:
    module = convolved(dimensions, transposed=transposed)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(s, generator=generator).double() for s in sizes(dimensions)]
    expected = module(*inputs)
    _, after = applied(unfused_bias, module)
    assert ops(after) == {"convolution.default": 1, "view.default": 1, "add.Tensor": 1}
    torch.testing.assert_close(after(*inputs), expected)


def test_a_convolution_without_a_bias_is_left_alone() -> None:
    _, once = applied(unfused_bias, convolved(2))
    changed, _ = applied(unfused_bias, once)
    assert not changed
