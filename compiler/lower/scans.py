"""Lowerings of operators that accumulate along a dimension."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.build import cast, compute_dtype
from tcdebug.compiler.ir.operations import INTEGERS
from tcdebug.compiler.lower.site import Lowering, Site
from tcdebug.compiler.lower.tensor import NotLowered, Tensor
from tcdebug.compiler.lower.views import normal_dim

aten = torch.ops.aten


def _scan(kind: str) -> Lowering:
    def lowering(
        site: Site, x: Tensor, dim: int, *, dtype: torch.dtype | None = None
    ) -> Tensor:
        """In double for float32, in float for half types, as eager does it."""
        if not x.size:
            return site.tensor(lambda point: x.at(point, site.dtype))
        dtype = site.dtype
        if dtype.is_complex:
            raise NotLowered("complex numbers")
        whole = dtype in (*INTEGERS, torch.bool)
        exact = dtype if whole else compute_dtype(dtype)
        if exact == dtype == torch.float32:
            exact = torch.float64
        converted = Tensor(exact, x.size, lambda point: cast(x.at(point, dtype), exact))
        states = site.scan(kind, converted, normal_dim(dim, len(x.size)))
        return site.tensor(lambda point: cast(states.at(point), dtype))

    return lowering


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.cumsum.default: _scan("cumsum"),
    aten.cumprod.default: _scan("cumprod"),
}
