"""fuse.recompute after fusion: what kernels compute again because others would have to store it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from traced_on_cuda import cuda, triton_of

Function = Callable[[torch.Tensor], torch.Tensor]


def stored(function: Function, *off: str) -> list[list[str]]:
    """The nodes that each kernel of a GPU stores, in the order of the kernels."""
    source = triton_of(lambda: (function, (cuda(256, 4096, 64),)), off=list(off))
    return [sorted(call.kernel.stored) for call in source.calls.values()]


def logarithms(x: torch.Tensor) -> torch.Tensor:
    """Two kernels of rows read the logarithms, with a mean of columns between."""
    high = (x.abs() + 1).log()
    shares = high / high.sum(2, keepdim=True)
    return (high - shares.mean(0)).amax(2)


def masks(x: torch.Tensor) -> torch.Tensor:
    """A mask, and what it is computed from, are each read by two kernels of rows."""
    high = (x.abs() + 1).log()
    largest = high == high.amax(2, keepdim=True)
    shares = high / largest.sum(2, keepdim=True)
    return (largest * shares.mean(0)).sum(2)


def products(x: torch.Tensor) -> torch.Tensor:
    """To compute the products takes four loads."""
    high = x.sin() * x.flip(0) * x.flip(1) * x.flip(2)
    shares = high / high.sum(2, keepdim=True)
    return (high - shares.mean(0)).amax(2)


AGAIN: dict[str, tuple[Function, list[list[str]], list[str]]] = {
    "a function of an input": (
        logarithms,
        [["sum_1_sum"], ["mean_sum"], ["amax_max"]],
        ["log", "sum_1_sum"],
    ),
    "values of rows with it": (
        masks,
        [["amax_max", "sum_1_sum"], ["mean_sum"], ["sum_2_sum"]],
        ["amax_max", "log", "sum_1_sum"],
    ),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_kernel_computes_again_what_it_computes_from_what_it_reads(name: str) -> None:
    function, kernels, without = AGAIN[name]
    assert stored(function) == kernels
    assert stored(function, "fuse.recompute") == [without, *kernels[1:]]


def test_a_kernel_loads_what_would_take_more_loads_to_compute() -> None:
    assert stored(products) == [["mul_2", "sum_1_sum"], ["mean_sum"], ["amax_max"]]


def shares_of_places(x: torch.Tensor) -> torch.Tensor:
    shares = x.softmax(2)
    largest = shares == shares.amax(2, keepdim=True)
    divided = shares / largest.sum(2, keepdim=True)
    return (divided - divided.mean(0)).amax(2)


def gradient_of_a_norm(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    largest = y.abs().amax(2, keepdim=True)
    places, scaled = y.abs() == largest, y / largest
    across = (scaled * x.sin()).sum(2, keepdim=True)
    added = scaled * x.cos() + places * (across / places.sum(2, keepdim=True))
    return (added - added.mean(0)).amax(2)


JOINED: dict[str, tuple[Function, list[list[str]]]] = {
    "quotients": (shares_of_places, [["div_1"], ["mean_sum"], ["amax_2_max"]]),
    "sums": (gradient_of_a_norm, [["add"], ["mean_sum"], ["amax_1_max"]]),
}


@pytest.mark.parametrize("name", JOINED)
def test_a_value_joins_the_kernel_of_its_operands_before_that_of_a_reader(name: str) -> None:
    """The kernel of rows first takes the sum of a mask, which has fewer bytes than the value has.

    A kernel of the value and of a mean over other elements would load all operands again.
    """
    function, kernels = JOINED[name]
    assert stored(function, "fuse.recompute") == kernels
