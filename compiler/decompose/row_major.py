"""Decompositions of operators whose results are row-major in eager on a CPU.

torch's decompositions keep the strides of the input.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler import seams

aten = torch.ops.aten
Pair = tuple[torch.Tensor, torch.Tensor]


def log_sigmoid_forward(x: torch.Tensor) -> Pair:
    """Return the logarithm of the sigmoid, and the buffer that its backward reads."""
    op = aten.log_sigmoid_forward
    decomposed = seams.get_decompositions([op])[op.default]
    out, buffer = decomposed(x)
    if x.device.type != "cpu":
        return out, buffer
    return out.contiguous(), buffer.contiguous()


ROW_MAJOR: dict[torch._ops.OpOverload, Callable[..., Pair]] = {
    aten.log_sigmoid_forward.default: log_sigmoid_forward
}
