"""Sorts of short rows on a GPU: what later kernels read of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from traced_on_cuda import cuda, triton_of

Stored = dict[str, torch.dtype]


def stored(function: Callable[[torch.Tensor], object]) -> list[Stored]:
    """The values that each kernel stores."""
    source = triton_of(lambda: (function, (cuda(64, 129),)))
    return [
        {n.name: n.out.dtype for n in call.kernel.nodes if n.name in call.kernel.stored}
        for call in source.calls.values()
    ]


def test_places_of_sorted_elements_take_16_bits_between_kernels() -> None:
    kernels = stored(lambda x: x.gather(1, x.argsort(1)).flip(1).cumsum(1))
    assert kernels[0] == {"sort_argsort": torch.int16}


def test_places_of_sorted_elements_that_are_returned_take_64_bits() -> None:
    (kernel,) = stored(lambda x: x.sort(1))
    assert [*kernel.values()] == [torch.float32, torch.int64]
