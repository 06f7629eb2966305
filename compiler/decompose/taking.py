"""take without a look at the data: torch's decomposition reads an index that is one number."""

from __future__ import annotations

from collections.abc import Callable

import torch

aten = torch.ops.aten


def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Elements by their places in row-major order."""
    row = aten.reshape.default(x, [-1])
    result: torch.Tensor = aten.index.Tensor(row, [index])
    return result


TAKING: dict[torch._ops.OpOverload, Callable[..., torch.Tensor]] = {aten.take.default: take}
