"""Programs on half types whose results are compared with those of eager to the bit."""

from __future__ import annotations

import torch


def every_number(dtype: torch.dtype) -> list[torch.Tensor]:
    """All numbers of a half type in 256 x 256, and the same in another order."""
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).view(256, 256)
    return [every, every.flip(0).roll(77, 1).contiguous()]


def rounds_often(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Round after negations, products, quotients, sums and choices."""
    return x.neg(), x * y, (x / 3).clamp(-2, 1e4) + y, torch.where(x > y, x, y * 1e-3).abs()


def updates_what_it_read(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Overwrite an input that an earlier value was computed from."""
    before = x * 0.5 + y
    x.mul_(3).add_(before)
    return x, before - x
