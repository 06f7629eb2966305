"""Convolutions and their gradients, which run in channels-last layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class Residual(nn.Module):
    """Two convolutions with batch norms, added to their input."""

    def __init__(self, *, groups: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(32, 32, 3, padding=1, groups=groups), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.layers(x)).relu()


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual block": (Residual, (8, 32, 28, 28)),
    "grouped residual block": (lambda: Residual(groups=32), (8, 32, 29, 27)),
    "stem with pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        ),
        (4, 3, 64, 64),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.AvgPool2d(2)),
        (4, 32, 14, 14),
    ),
    "resized and flattened": (
        lambda: nn.Sequential(
            nn.Conv2d(8, 16, 3),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(16, 8, 3),
            nn.Flatten(),
            nn.Linear(8 * 26 * 26, 4),
        ),
        (4, 8, 16, 16),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_and_gradients_are_those_of_eager_with_its_strides(
    name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    build, size = NETWORKS[name]
    network = build().to("cuda", dtype)
    x = torch.randn(size, device="cuda", dtype=dtype, requires_grad=True)
    leaves = [x, *network.parameters()]

    def run(function: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        result = function(x)
        slope = torch.linspace(-1, 1, result.numel(), device="cuda").reshape(result.shape)
        return [result, *torch.autograd.grad(result, leaves, slope.to(dtype))]

    expected, found = run(network), run(torch.compile(network, backend="tcdebug"))
    exact_network, exact_x = network.double(), x.detach().double().requires_grad_()
    result = exact_network(exact_x)
    slope = torch.linspace(-1, 1, result.numel(), device="cuda", dtype=torch.float64)
    given = [exact_x, *exact_network.parameters()]
    exact = [result, *torch.autograd.grad(result, given, slope.reshape(result.shape))]
    for eager, ours, right in zip(expected, found, exact, strict=True):
        assert ours.stride() == eager.stride()
        error, allowed = (ours.double() - right).norm(), (eager.double() - right).norm()
        assert error <= 3 * allowed + 2e-3 * right.norm() + 1e-3


def test_an_inference_without_gradients_agrees_with_eager() -> None:
    torch.manual_seed(0)
    network = Residual().cuda().eval()
    x = torch.randn(8, 32, 28, 28, device="cuda")
    with torch.no_grad():
        expected, found = network(x), torch.compile(network, backend="tcdebug")(x)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
