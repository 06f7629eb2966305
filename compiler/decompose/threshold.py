"""The gradient of a threshold that a half type does not hold, as in eager.

torch's decomposition rounds the threshold to the dtype of the input, as eager does on a GPU. On a
CPU, eager compares in float32, where an input next to the threshold may be larger.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.ir.operations import HALVES

aten = torch.ops.aten
Tensor = torch.Tensor


def threshold_backward(grad_output: Tensor, x: Tensor, threshold: float) -> Tensor:
    """Return the gradient of `threshold` and of `relu` with respect to `x`."""
    compared = x
    if x.device.type == "cpu" and x.dtype in HALVES and threshold != 0:
        compared = x.to(torch.float32)
    op = aten.threshold_backward
    decomposed = seams.get_decompositions([op])[op.default]
    gradient: Tensor = decomposed(grad_output, compared, threshold)
    return gradient


THRESHOLD: dict[torch._ops.OpOverload, Callable[..., Tensor]] = {
    aten.threshold_backward.default: threshold_backward
}
