"""Functions and choices within short rows are in different kernels on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cpp_kernels import kernels_as_eager
from stages import capture

Function = Callable[..., Any]
PLACES = torch.arange(1200).reshape(200, 6, 1).expand(200, 6, 7) % 7


def sizes(function: Function, *inputs: torch.Tensor) -> list[int]:
    """The elements that each kernel stores, in order."""
    (schedule,) = capture(function, *inputs, dynamic=False).schedules
    return [max(n.out.numel.constant or 0 for n in k.nodes) for k in schedule.kernels()]


def reflected(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (1, 1, 1, 1), mode="reflect")


APART: dict[str, tuple[Function, tuple[int, ...], list[int]]] = {
    "a function of a reflection": (lambda x: reflected(x).exp(), (200, 3, 7, 7), [48600, 48600]),
    "a reflection of a function": (lambda x: reflected(x.exp()), (200, 3, 7, 7), [29400, 48600]),
    "a function of zeros around rows": (lambda x: F.pad(x, (1, 1)).tanh(), (2000, 26), [56000] * 2),
    "a function of a shifted row": (lambda x: x.roll(3, -1).tanh(), (2000, 24), [48000] * 2),
    "a function of a gather": (lambda x: x.gather(2, PLACES).exp(), (200, 6, 7), [8400, 8400]),
}


@pytest.mark.parametrize("name", APART)
def test_a_function_is_computed_in_a_kernel_without_rows(name: str) -> None:
    function, size, wanted = APART[name]
    assert sizes(function, torch.ones(size)) == wanted


TOGETHER: dict[str, tuple[Function, tuple[int, ...]]] = {
    "no function": (lambda x: reflected(x) * 3, (200, 3, 7, 7)),
    "long rows": (lambda x: reflected(x).exp(), (20, 3, 40, 40)),
    "few elements": (lambda x: reflected(x).exp(), (10, 3, 7, 7)),
    "rows that are whole vectors": (lambda x: F.pad(x, (1, 1)).tanh(), (2000, 14)),
    "zeros around rows that are shorter than a vector": (
        lambda x: F.pad(x, (1, 1)).tanh(),
        (2000, 7),
    ),
    "rows that are unrolled": (lambda x: F.pad(x, (1, 1)).tanh(), (2000, 2)),
    "a choice of rows": (lambda x: F.pad(x, (0, 0, 0, 1)).tanh(), (200, 11, 9)),
    "fewer elements than the operand has": (lambda x: x.exp()[torch.arange(500) * 2], (2000, 9)),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_what_is_no_slower_stays_one_kernel(name: str) -> None:
    function, size = TOGETHER[name]
    assert len(sizes(function, torch.ones(size))) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_those_of_eager(dtype: torch.dtype) -> None:
    x = torch.randn(200, 6, 7, generator=torch.Generator().manual_seed(0)).to(dtype)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.pad(x * x, (2, 1), mode="reflect").exp(),
            F.pad(x.exp(), (2, 1), mode="circular"),
            F.pad(x, (2, 1)).tanh(),
            x.gather(2, PLACES).exp(),
        )

    kernels_as_eager(function, [x])
