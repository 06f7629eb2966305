"""The order of the loops of reductions over memory that is not contiguous."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels
from judge import assert_as_eager, compiled

PLANES = torch.randn(9, 10, 12, 11, generator=torch.Generator().manual_seed(0)).permute(3, 2, 1, 0)
STRIDED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "transposed, first axes": (lambda x: x.amax((0, 1)), PLANES),
    "transposed, axes apart": (lambda x: x.logsumexp((0, 2)), PLANES),
    "transposed, last axes": (lambda x: x.sum((2, 3)), PLANES),
    "transposed, all axes": (lambda x: torch.var_mean(x), PLANES),
    "transposed, softmax": (lambda x: x.softmax(1), PLANES),
    "sliced": (lambda x: x.sum(1), torch.randn(20, 5, 60)[..., ::2]),
    "sliced by three": (lambda x: x.mean((0, 1)), torch.randn(20, 5, 90)[..., ::3]),
    "broadcast": (lambda x: x.sum((0, 2)), torch.randn(1, 7, 30).expand(20, 7, 30)),
    "two layouts": (lambda x: (x * x.contiguous()).sum((0, 3)), PLANES),
    "positions": (lambda x: x.permute(0, 2, 1, 3).reshape(11, 10, -1).argmax(2), PLANES),
    "equal positions": (lambda x: (x > 0).to(torch.int32).argmax(0), PLANES),
    "rounded": (lambda x: x.bfloat16().sum((0, 2)), PLANES),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", STRIDED)
def test_reductions_of_strided_memory_are_those_of_eager(name: str) -> None:
    function, x = STRIDED[name]
    assert_as_eager(compiled(function), function, [x])


@pytest.mark.parametrize(("off", "loops"), [((), 1), (("codegen.loop_order",), 2)])
def test_loops_go_from_large_strides_to_small_ones(off: tuple[str, ...], loops: int) -> None:
    """The two reduced axes are contiguous in memory in the other order, so they become one loop."""
    text = kernels(lambda x: x.amax((0, 1)), PLANES, off=off)
    assert len(re.findall(r"for \(.* r\d", text)) == loops


def test_of_equal_axes_lanes_run_along_that_of_the_loads() -> None:
    """The sweeps of a softmax load an element three times and store it once."""
    planes = torch.randn(28, 28, 64, 16).permute(3, 2, 1, 0)
    text = kernels(lambda x: x.log_softmax(1), planes)
    assert "const int64_t i0 = from + l;" in text


def test_lanes_run_along_the_smallest_stride() -> None:
    x = torch.randn(70, 5, 200)[..., ::2]
    assert "const int64_t i1 = from + l;" in kernels(lambda x: x.sum(1), x)


def test_lanes_run_across_rows_that_are_shorter_than_a_vector() -> None:
    short, long = torch.randn(1000, 13), torch.randn(1000, 300)
    assert "int lanes" in kernels(lambda x: x.logsumexp(1), short)
    assert "int lanes" not in kernels(lambda x: x.logsumexp(1), long)
