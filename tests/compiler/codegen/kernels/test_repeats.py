"""codegen.repeats: elements that repeat along a row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cpp_kernels import kernels_as_eager
from judge import compiled
from torch.nn import functional as F

Function = Callable[[torch.Tensor], torch.Tensor]


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """Each element of a row several times."""
    return x[:, :, None].expand(-1, -1, times).reshape(x.shape[0], -1)


PROGRAMS: dict[str, tuple[Function, bool]] = {
    # the function, and whether it has a loop over repetitions
    "eight times": (lambda x: repeated(x, 8) * 2, True),
    "twelve times, a function": (lambda x: repeated(x, 12).exp(), True),
    "resized by a float": (lambda x: F.interpolate(x[None, None], scale_factor=8.0) / 3, False),
    "added rows": (lambda x: repeated(x, 8) + x.sum(1, keepdim=True).neg(), True),
    "two tensors": (lambda x: repeated(x, 8) * repeated(x.flip(0), 8), True),
    "twice": (lambda x: repeated(x, 2) * 2, False),
    "two lengths": (lambda x: repeated(x, 8) + repeated(repeated(x[:, :5], 2), 8), False),
    "with neighbours": (lambda x: repeated(x, 8) + torch.arange(80) * 0.5, False),
    "of one column": (lambda x: repeated(x[:, :1], 8) * 2, False),
    "masked": (lambda x: torch.where(torch.arange(80) < 13, repeated(x, 8), 0.5), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_element_that_repeats_along_a_row_is_computed_once(name: str) -> None:
    function, loops = PROGRAMS[name]
    torch._dynamo.reset()
    x = torch.randn(6, 10)
    assert ("_block" in kernels_as_eager(function, [x])) == loops


def test_the_gradient_of_a_mean_of_regions_is_that_of_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(F.adaptive_avg_pool2d(x, 3).square().sum(), x)
        return found

    torch._dynamo.reset()
    x = torch.randn(2, 3, 24, 48, requires_grad=True)
    whole = compiled(lambda x: F.adaptive_avg_pool2d(x, 3).square().sum())
    (found,) = torch.autograd.grad(whole(x), x)
    torch.testing.assert_close(found, function(x))
