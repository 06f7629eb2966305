"""Comparisons of tensors with numbers."""

from __future__ import annotations

import pytest
import torch
from judge import assert_as_eager, compiled
from torch import Tensor

NUMBERS = (0.3, 1 / 3, -0.7, 1e-9, 2049, 65519.0, 70000.0, float("nan"), True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_number_is_converted_to_the_dtype_that_it_is_compared_in(dtype: torch.dtype) -> None:
    """0.3 is smaller than the nearest number of float16, which does not count as greater."""
    near = torch.tensor(NUMBERS, dtype=torch.float64)
    x = torch.cat([near, near * 1.0005, near * 0.9995]).to(dtype)

    def function(x: Tensor) -> list[Tensor]:
        found = [(x > n, x >= n, x < n, x <= n, x == n, x != n) for n in NUMBERS]
        return [result for results in found for result in results]

    assert_as_eager(compiled(function), function, [x])


def test_a_choice_at_a_number_is_that_of_eager() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.where(x > 0.3, x, -x)

    x = torch.tensor([0.3], dtype=torch.float16)
    assert compiled(function)(x).tolist() == function(x).tolist() == [-0.300048828125]
