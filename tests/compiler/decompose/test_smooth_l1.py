"""The gradient of the smooth L1 loss."""

from __future__ import annotations

import pytest
import torch
from judge import assert_same, compiled, copies, gradients
from torch.nn import functional as F

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_the_gradient_of_smooth_l1_loss_is_nan_where_a_difference_is(reduction: str) -> None:
    target = torch.tensor([0.0, INF, NAN, 0.0, 0.0, 0.0])

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(x, target, reduction=reduction)

    x = torch.tensor([NAN, INF, 1.0, 3.0, -0.5, -INF], requires_grad=True)
    assert_same(gradients(compiled(loss), copies([x])), gradients(loss, [x]))
    assert gradients(compiled(loss), copies([x]))[-1].isnan().tolist() == [True] * 3 + [False] * 3


def test_the_gradient_of_smooth_l1_loss_keeps_the_dtype() -> None:
    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.smooth_l1_loss(x, target, beta=0.5)

    inputs = [torch.linspace(-2, 2, 7).bfloat16().requires_grad_(), torch.zeros(7).bfloat16()]
    assert_same(gradients(compiled(loss), copies(inputs)), gradients(loss, inputs))
