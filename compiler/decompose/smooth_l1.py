"""The gradient of the smooth L1 loss at NaN, which is NaN as in eager.

torch's decomposition takes the sign of the difference there, which is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler import seams

aten = torch.ops.aten
Tensor = torch.Tensor


def smooth_l1_loss_backward(
    grad_output: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Return the gradient of `smooth_l1_loss` with respect to `x`."""
    op = aten.smooth_l1_loss_backward
    decomposed = seams.get_decompositions([op])[op.default]
    gradient: Tensor = decomposed(grad_output, x, target, reduction, beta)
    difference = x - target
    return torch.where(torch.isnan(difference), difference.to(gradient.dtype), gradient)


SMOOTH_L1: dict[torch._ops.OpOverload, Callable[..., Tensor]] = {
    aten.smooth_l1_loss_backward.default: smooth_l1_loss_backward
}
