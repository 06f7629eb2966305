"""Results that eager lays out in rows on a CPU, where torch's decompositions keep the strides."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tcdebug.compiler import seams

aten = torch.ops.aten
Pair = tuple[torch.Tensor, torch.Tensor]


def log_sigmoid_forward(x: torch.Tensor) -> Pair:
    """The logarithm of the sigmoid, and what its backward reads."""
    op = aten.log_sigmoid_forward
    decomposed = seams.get_decompositions([op])[op.default]
    out, buffer = decomposed(x)
    if x.device.type != "cpu":
        return out, buffer
    return out.contiguous(), buffer.contiguous()


ROW_MAJOR: dict[torch._ops.OpOverload, Callable[..., Pair]] = {
    aten.log_sigmoid_forward.default: log_sigmoid_forward
}
