"""An interpolation along one dimension after the other has the bits of torch's decomposition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from graphs import applied, ops, torch_graph
from judge import assert_same, compiled
from programs import f32
from torch.nn import functional as F

from tcdebug.compiler.pregrad.separate_interpolation import separate_interpolation

UNIT = "pregrad.separate_interpolation"
Enlarge = Callable[[torch.Tensor], torch.Tensor]


def enlarged(**how: Any) -> Enlarge:
    return partial(F.interpolate, **how)


ENLARGED = [
    enlarged(scale_factor=2, mode="bilinear"),
    enlarged(size=(13, 4), mode="bilinear", align_corners=True),
    enlarged(scale_factor=(1.5, 2.3), mode="bicubic"),
    enlarged(size=(5, 30), mode="bicubic", align_corners=True),
]


def volume(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x.unsqueeze(1), size=(4, 7, 11), mode="trilinear")


CASES = [
    ((2, 3, 7, 9), torch.float32, [*ENLARGED, volume]),
    ((2, 3, 7, 9), torch.bfloat16, ENLARGED[::2]),
    ((1, 2, 1, 1), torch.float32, [*ENLARGED[:2], enlarged(size=(1, 1), mode="bilinear")]),
]


@pytest.mark.parametrize(("size", "dtype", "functions"), CASES)
def test_values_are_those_of_the_decomposition_and_strides_those_of_eager(
    size: tuple[int, ...], dtype: torch.dtype, functions: list[Enlarge]
) -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in functions]

    x = f32(*size).to(dtype)
    apart = compiled(function)(x)
    torch._dynamo.reset()
    together = compiled(function, options={"off": [UNIT]})(x)
    for mine, theirs, eager in zip(apart, together, function(x), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.stride() == eager.stride()
        assert_same(mine, eager)


def test_points_of_a_ramp_are_halfway_between_its_steps() -> None:
    x = torch.tensor([[[[0.0, 4.0], [8.0, 12.0]]]])
    doubled = compiled(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))(x)
    assert doubled[0, 0].tolist() == [
        [0.0, 1.0, 3.0, 4.0],
        [2.0, 3.0, 5.0, 6.0],
        [6.0, 7.0, 9.0, 10.0],
        [8.0, 9.0, 11.0, 12.0],
    ]


def test_an_interpolation_becomes_one_call() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode="bicubic")

    changed, module = applied(separate_interpolation, torch_graph(function, f32(2, 3, 5, 6)))
    assert changed
    assert ops(module) == {"separated": 1}


def test_other_interpolations_stay() -> None:
    def bilinear(x: torch.Tensor, **keywords: Any) -> torch.Tensor:
        return F.interpolate(x, mode="bilinear", **keywords)

    last = torch.channels_last
    for function, x in (
        (lambda x: bilinear(x, scale_factor=2), f32(2, 3, 5, 6).requires_grad_()),
        (lambda x: bilinear(x, scale_factor=2), f32(2, 3, 5, 6).contiguous(memory_format=last)),
        (lambda x: bilinear(x, scale_factor=2, antialias=True), f32(2, 3, 5, 6)),
        (lambda x: bilinear(x, size=(3, 20)), f32(2, 3, 6, 6)),
        (lambda x: F.interpolate(x, scale_factor=2), f32(2, 3, 5, 6)),
        (lambda x: bilinear(x, scale_factor=2), torch.ones(1, 1, 2, 2, dtype=torch.uint8)),
    ):
        torch._dynamo.reset()
        changed, _ = applied(separate_interpolation, torch_graph(function, x))
        assert not changed
