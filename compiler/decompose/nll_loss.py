"""Decomposes the negative log likelihood loss, and its gradient into pointwise operators.

torch's decomposition of the loss sums in the dtype of the input. More than 65504 targets are too
many for float16, whose loss would be 0 or NaN. torch's decomposition of the gradient scatters into
zeros. The partition does not recompute the input of a scatter, so the whole input would be saved
for backward, in float32 if the loss is computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler.ir.build import compute_dtype

aten = torch.ops.aten
Tensor = torch.Tensor
NONE, MEAN = 0, 1


def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the loss and the sum of the targets' weights. Means of half types use float32 sums.

    `x` is [C], [N, C] or [N, C, H, W]. The target has the same shape without C.
    """
    classes = 0 if x.dim() < 2 else 1
    kept = target != ignore_index
    places = torch.where(kept, target, 0).unsqueeze(classes)
    lost = -x.gather(classes, places).squeeze(classes)
    weights = None
    if weight is not None:
        shape = [1] * x.dim()
        shape[classes] = x.shape[classes]
        weights = weight.reshape(shape).expand(x.shape).gather(classes, places).squeeze(classes)
        lost, weights = lost * weights, torch.where(kept, weights, 0)
    lost = torch.where(kept, lost, 0)
    if reduction == NONE and x.dim() > 1:
        return lost, x.new_zeros(())
    dtype = compute_dtype(x.dtype)
    total = kept.sum().to(dtype) if weights is None else weights.sum(dtype=dtype)
    if reduction == MEAN:
        lost = (lost.sum(dtype=dtype) / total).to(x.dtype)
    elif reduction != NONE:
        lost = lost.sum()
    return lost, total.to(x.dtype)


def nll_loss_backward(
    grad_output: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Minus the gradient of the loss at the target class, zero elsewhere.

    `x` is [C], [N, C] or [N, C, H, W]. The target has the same shape without C.
    """
    classes = 0 if x.dim() < 2 else 1
    if reduction == MEAN:
        grad_output = grad_output / total_weight
    shape = [1] * x.dim()
    shape[classes] = x.shape[classes]
    if weight is not None:
        grad_output = _along(grad_output, x, classes) * weight.reshape(shape)
    target = target.unsqueeze(classes)
    places = torch.arange(x.shape[classes], device=x.device, dtype=target.dtype).reshape(shape)
    hit = (places == target) & (target != ignore_index)
    lost = -_along(grad_output, x, classes)
    return torch.where(hit, lost, 0.0).to(x.dtype)


def _along(gradient: Tensor, x: Tensor, classes: int) -> Tensor:
    """A gradient per target with a dimension for the classes; a scalar gradient unchanged."""
    missing = 0 < gradient.dim() < x.dim()
    return gradient.unsqueeze(classes) if missing else gradient


NLL_LOSS: dict[torch._ops.OpOverload, Callable[..., Tensor | tuple[Tensor, Tensor]]] = {
    aten.nll_loss_forward.default: nll_loss_forward,
    aten.nll_loss2d_forward.default: nll_loss_forward,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
}
