"""codegen.cut_axes: loops over the rows into which quotients and remainders divide an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels, kernels_as_eager
from judge import compiled
from torch.nn import functional as F

Function = Callable[[torch.Tensor], Any]


def patches(x: torch.Tensor) -> torch.Tensor:
    """The patches of 16 x 16 points of images of 32 x 48 points with two channels, as rows."""
    return x.view(3, 2, 2, 16, 3, 16).permute(0, 2, 4, 1, 3, 5).reshape(18, 512)


def windows(x: torch.Tensor) -> torch.Tensor:
    """Windows of 4 x 8 points, as rows."""
    return x.view(6, 8, 4, 6, 8).transpose(2, 3).reshape(6, 48, 32)


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """Each element of a row several times."""
    return x.view(96, 96)[..., None].expand(-1, -1, times).reshape(96, -1)


DIVIDED: dict[str, Function] = {
    "patches": lambda x: patches(x) * 2,
    "patches and a row": lambda x: patches(x) + torch.arange(512),
    "patches in bfloat16": lambda x: patches(x.bfloat16()).sin() + 1,
    "norm of patches": lambda x: F.layer_norm(patches(x), (512,)),
    "largest of each patch": lambda x: patches(x).max(-1),
    "softmax of windows": lambda x: windows(x).softmax(-1),
    "sum over windows": lambda x: windows(x).sum(1),
    "running sum of a repeated row": lambda x: x.view(96, 96).repeat(1, 2).cumsum(1),
    "columns of a repeated matrix": lambda x: x.view(96, 96).repeat(3, 2).amax(0),
    "windows that overlap": lambda x: F.unfold(x, 3).exp(),
    "sum of windows that overlap": lambda x: F.unfold(x, 3).sum(1),
    "place of the largest in windows that overlap": lambda x: F.unfold(x, 5, stride=2).argmax(1),
    "channels to pixels": lambda x: F.pixel_shuffle(x.view(1, 36, 16, 16), 3).relu(),
    "pixels to channels": lambda x: F.pixel_unshuffle(x, 4).relu(),
    "heads": lambda x: x.view(8, 24, 3, 16).transpose(1, 2).reshape(24, 24, 16) * 2,
    "repeated three times": lambda x: repeated(x, 3) * 2,
    "repeated eight times": lambda x: repeated(x, 8).exp(),
    "repeated ten times and a row": lambda x: repeated(x, 10) + torch.arange(960) * 0.5,
    "repeated twice": lambda x: repeated(x, 2) * 2,
    "repeated and added to sums of rows": lambda x: repeated(x, 8) + x.view(96, 96).sum(1, True),
    "two tensors": lambda x: repeated(x, 8) * repeated(x.flip(0), 8),
    "masked": lambda x: torch.where(torch.arange(768) < 113, repeated(x, 8), 0.5),
}
WHOLE: dict[str, Function] = {
    "two lengths": lambda x: repeated(x, 9) + repeated(x, 12)[:, :864],
    "one column": lambda x: x.view(96, 96)[:, :1, None].expand(-1, -1, 8).reshape(96, 8) * 2,
    "resized by a float": lambda x: F.interpolate(x[:1], scale_factor=8.0) / 3,
    "from within a row": lambda x: x.view(96, 96)[:, :95].reshape(-1)[7:9007] * 2,
}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(3, 2, 32, 48, generator=torch.Generator().manual_seed(0))


@pytest.mark.sampled
@pytest.mark.parametrize("name", DIVIDED)
def test_an_axis_that_consists_of_rows_is_divided_less(name: str, images: torch.Tensor) -> None:
    torch._dynamo.reset()
    text = kernels_as_eager(DIVIDED[name], [images])
    whole = kernels(DIVIDED[name], images, off=("codegen.cut_axes",))
    assert "_row" in text
    assert "_row" not in whole
    assert text.count(" % ") + text.count(" / (") < whole.count(" % ") + whole.count(" / (")


@pytest.mark.parametrize("name", WHOLE)
def test_axes_without_such_rows_are_left_whole(name: str, images: torch.Tensor) -> None:
    torch._dynamo.reset()
    assert "_row" not in kernels_as_eager(WHOLE[name], [images])


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
