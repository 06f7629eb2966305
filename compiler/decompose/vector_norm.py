"""Decomposes norms of vectors as torch does, with dimensions counted from the front.

torch 2.11 keeps a dimension of one element that is counted from the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from tcdebug.compiler import seams

aten = torch.ops.aten


def vector_norm(
    x: torch.Tensor, ord: float = 2, dim: Sequence[int] | None = None, *args: Any, **kwargs: Any
) -> Any:
    """The norm of order `ord` over some dimensions, or over all elements."""
    places = None if dim is None else [d % max(x.dim(), 1) for d in dim]
    return _of_torch()(x, ord, places, *args, **kwargs)


@lru_cache(maxsize=1)
def _of_torch() -> Callable[..., Any]:
    op = aten.linalg_vector_norm.default
    return seams.get_decompositions([op])[op]


VECTOR_NORM: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    aten.linalg_vector_norm.default: vector_norm,
}
