"""Results share memory with inputs and with each other as in eager, whatever copies are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Program = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def read_and_viewed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    copy = x.permute(0, 2, 1).clone()
    return copy + copy, copy.permute(1, 2, 0)


def computed_and_copied(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    computed = x * 2
    return computed.transpose(1, 2).clone().transpose(1, 2), computed


def views_of_computed_and_of_its_copy(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    computed = x + 1
    return computed.view(-1), computed.clone().view(-1)


def copied_and_updated(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    copy = x.transpose(1, 2).clone()
    x.add_(1)
    return copy + 1, copy.transpose(1, 2)


PROGRAMS: dict[str, Program] = {
    "a copy of a view of an input, viewed": lambda x: (x.mT.clone().permute(1, 2, 0),),
    "such a copy, read and viewed": read_and_viewed,
    "such a copy, before an update of the input": copied_and_updated,
    "a part of a copy of a slice": lambda x: (x[:].clone()[1:],),
    "a conversion to the same dtype": lambda x: (x.mT.to(x.dtype, copy=True).mT,),
    "two copies": lambda x: (x.clone().view(-1), x.clone().view(-1)),
    "copies of copies": lambda x: (x.clone().clone().view(-1), (x * 2).clone().clone().view(-1)),
    "copies of parts": lambda x: tuple(part.clone().view(-1) for part in x.chunk(3)),
    "a computed value and a copy of its view": computed_and_copied,
    "a view of a computed value, and of its copy": views_of_computed_and_of_its_copy,
    "nothing multiplied or added": lambda x: ((x.mT * 1).mT, (x.mT + 0).mT, x.view(-1)),
    "a contiguous tensor": lambda x: (x.contiguous().view(-1), x.contiguous()),
    "one tensor joined": lambda x: (torch.cat([x.mT]).mT, torch.cat([x]).view(-1)),
    "an expanded copy": lambda x: (x.expand(x.shape).clone().flatten(), x.expand(x.shape)),
}


def sharing(x: torch.Tensor, results: tuple[torch.Tensor, ...]) -> list[int]:
    """For the input and each result, the first of them that shares its memory."""
    memory = [value.untyped_storage().data_ptr() for value in (x, *results)]
    return [memory.index(place) for place in memory]


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_results_share_memory_as_in_eager(name: str, dtype: torch.dtype) -> None:
    program: Any = PROGRAMS[name]
    x, again = (torch.ones(3, 4, 5, dtype=dtype) for _ in range(2))
    expected, results = program(x), torch.compile(program, backend="tcdebug")(again)
    assert sharing(again, results) == sharing(x, expected)
    torch.testing.assert_close((*results, again), (*expected, x))
