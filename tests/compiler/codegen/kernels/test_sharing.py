"""Kernels with equal code share one function. What makes their code different."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge import assert_as_eager, compiled
from programs import f32
from stages import capture
from torch import nn

from tcdebug.compiler.codegen.cpp.source import write_cpp
from tcdebug.compiler.codegen.triton.source import write_triton
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles


class Layer(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8, eps=eps)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x)).sigmoid()


def layers(*eps: float) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*map(Layer, eps))


def codes(function: Callable[..., Any], *inputs: torch.Tensor, off: str = "") -> list[str]:
    """Kernel -> the kernel whose code it runs. It is the same in C++ and Triton."""
    apart = Toggles.parse(["fuse.horizontal"])
    (schedule,) = capture(function, *inputs, toggles=apart).schedules
    buffers, gate = schedule.graph.buffers(), Gate(Toggles.parse([off] if off else []))
    found: list[list[str]] = []
    for write in (write_cpp, write_triton):
        source = write(schedule.kernels(), buffers, gate)
        found.append([call.code for call in source.calls.values()])
        written = re.findall(r"^(?:extern \"C\" int|def) (\w+)(?<!_packed)\(", source.text, re.M)
        assert sorted(written) == sorted(set(found[-1]))
    assert found[0] == found[1]
    return found[0]


@torch.no_grad()
def test_equal_layers_run_the_same_code() -> None:
    names = codes(layers(1e-5, 1e-5, 1e-5, 1e-5), f32(4, 8))
    assert len(names) == 5
    assert len(set(names)) == 3  # the first norm, the kernel between two layers, the last sum
    torch._dynamo.reset()
    model = layers(1e-5, 1e-5, 1e-5, 1e-5)
    assert_as_eager(compiled(model), model, [f32(4, 8)])


@torch.no_grad()
def test_a_different_constant_makes_different_code() -> None:
    assert len(set(codes(layers(1e-5, 1e-5, 1e-5, 1e-3), f32(4, 8)))) == 4


def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin(), y.sin()


OTHERS = {
    "dtype": f32(4, 8).double(),
    "strides": torch.empty_strided((4, 8), (16, 1)),
    "size": f32(4, 9),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_different_memory_layout_makes_different_code(other: torch.Tensor) -> None:
    assert len(set(codes(two, f32(4, 8), f32(4, 8)))) == 1
    torch._dynamo.reset()
    assert len(set(codes(two, f32(4, 8), other))) == 2


def test_each_kernel_has_code_of_its_own_with_the_unit_off() -> None:
    assert len(set(codes(two, f32(4, 8), f32(4, 8), off="codegen.share"))) == 2
