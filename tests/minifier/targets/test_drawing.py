"""Which graphs draw random numbers that eager does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx

from tcdebug.minifier.targets.drawing import draws_apart


def with_probabilities(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(x)


def with_a_generator(x: torch.Tensor) -> torch.Tensor:
    return x.bernoulli(generator=None)


def with_a_number(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(x, 0.5)


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((3,)).bernoulli_(0.5)


def uniform(x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(x)


@pytest.mark.parametrize(
    ("function", "apart"),
    [
        (with_probabilities, True), (with_a_generator, True),
        (with_a_number, False), (in_place, False), (uniform, False),
    ],
)  # fmt: skip
def test_inductor_draws_apart_from_eager_only_for_probabilities_in_a_tensor_on_a_gpu(
    function: Callable[[torch.Tensor], torch.Tensor], apart: bool
) -> None:
    graph = fx.symbolic_trace(function)
    assert draws_apart(graph, ["cpu", "cuda:0"]) is apart
    assert not draws_apart(graph, ["cpu"])
