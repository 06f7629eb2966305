"""Decompositions of batch norm without mutation. torch's use an operator that mutates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tcdebug.compiler import seams

aten = torch.ops.aten
Tensor = torch.Tensor


def _laid_out(out: Tensor, x: Tensor) -> Tensor:
    """Return the result in eager's layout: row-major or channels last."""
    return out.contiguous(memory_format=seams.suggest_memory_format(x))


def no_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by the running statistics."""
    out, mean, rstd, _, _ = seams.native_batch_norm_helper(
        x, weight, bias, running_mean, running_var, False, momentum, eps, True
    )
    return _laid_out(out, x), mean, rstd


def functional(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Normalise, and return the new running statistics."""
    out, mean, rstd, new_mean, new_var = seams.native_batch_norm_helper(
        x, weight, bias, running_mean, running_var, training, momentum, eps, True
    )
    return _laid_out(out, x), mean, rstd, new_mean, new_var


def no_stats(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by the statistics of the batch."""
    out, mean, rstd, _, _ = seams.native_batch_norm_helper(
        x, weight, bias, None, None, training, momentum, eps, True
    )
    return _laid_out(out, x), mean, rstd


def with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """Normalise in training on a CPU, and return the new running statistics last.

    The result before them is what cuDNN reserves for backward, which has no bytes on a CPU.
    """
    if x.device.type != "cpu":
        return NotImplemented
    out, mean, rstd, new_mean, new_var = functional(
        x, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return out, mean, rstd, x.new_empty(0, dtype=torch.uint8), new_mean, new_var


BATCH_NORM: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten._native_batch_norm_legit_no_training.default: no_training,
    aten._native_batch_norm_legit_functional.default: functional,
    aten._native_batch_norm_legit.no_stats: no_stats,
    aten._batch_norm_with_update_functional.default: with_update,
}
