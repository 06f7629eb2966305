"""Operations that Triton kernels compute in another way, with the same result."""

from __future__ import annotations

import pytest
import torch
from traced_on_cuda import cuda, triton_of


@pytest.mark.parametrize(
    ("columns", "divisions"), [(64, 0), (1024, 0), (56, 1), (1000, 1)], ids=str
)
def test_a_mean_of_a_power_of_two_elements_has_no_division(columns: int, divisions: int) -> None:
    text = triton_of(lambda: (lambda x: x.mean(1), (cuda(300, columns),))).text
    assert text.count("div_rn") == divisions


@pytest.mark.parametrize("number", [0.25, -8.0, 2.0**-126, 2.0**127])
def test_a_multiplication_by_the_reciprocal_of_a_power_of_two_is_exact(number: float) -> None:
    tiny, huge = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    x = torch.tensor([0.0, -0.0, 1.0, 3.0, 1 / 3, tiny / 8, tiny * 3, huge, -huge, torch.inf])
    x = torch.cat([x, torch.randn(1000) * 2.0 ** torch.randint(-140, 120, (1000,))])
    assert torch.equal(x / torch.full_like(x, number), x * (1 / number))


def test_a_softmax_of_numbers_without_memory_is_written() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(3000, device=x.device).unsqueeze(1)
        columns = torch.arange(50_000, device=x.device)
        return (rows * columns).sin().logsumexp(1) + x

    assert "add_distances" in triton_of(lambda: (function, (cuda(1),))).text
