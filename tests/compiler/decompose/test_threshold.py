"""Gradients of thresholds that a half type rounds."""

from __future__ import annotations

import pytest
import torch
from judge import assert_same, compiled, copies, gradients
from torch.nn import functional as F

HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
@pytest.mark.parametrize("threshold", [0.1, -0.7, 1.1, 0.0])
def test_the_gradient_at_a_rounded_threshold_is_that_of_eager(
    dtype: torch.dtype, threshold: float
) -> None:
    near = torch.full((9,), threshold).to(dtype)
    x = torch.cat([near, torch.nextafter(near, near + 1), torch.nextafter(near, near - 1)])
    inputs = [x.requires_grad_()]

    def cut(x: torch.Tensor) -> torch.Tensor:
        return F.threshold(x, threshold, 20.0)

    assert_same(gradients(compiled(cut), copies(inputs)), gradients(cut, inputs), exact=True)
