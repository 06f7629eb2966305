"""Lowerings of operators that accumulate along a dimension."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.build import cast, compute_dtype, constant
from tcdebug.compiler.ir.operations import INTEGERS
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor

aten = torch.ops.aten


def _exact(site: Site, dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values are accumulated: on a CPU float64 for float32, as in eager."""
    if dtype in (*INTEGERS, torch.bool):
        return dtype
    compute = compute_dtype(dtype)
    on_cpu = site.result().device.type == "cpu"
    return torch.float64 if compute == dtype == torch.float32 and on_cpu else compute


def _scan(kind: str) -> Lowering:
    def lowering(site: Site, x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        """Return a scan, accumulated in the dtype of `_exact`."""
        if site.dtype.is_complex:
            raise NotLowered("complex numbers")
        return _states(site, kind, x, dim, site.dtype, _exact(site, site.dtype))

    return lowering


def _states(
    site: Site, kind: str, x: Tensor, dim: int, dtype: torch.dtype, exact: torch.dtype
) -> Tensor:
    """Return every state of a scan in `dtype`, accumulated in `exact`."""
    if not x.size:
        return site.tensor(lambda point: x.at(point, dtype))
    converted = Tensor(exact, x.size, lambda point: cast(x.at(point, dtype), exact))
    # float64 would take twice the memory; a half type is rounded where it is read
    stored = dtype if exact == torch.float64 else exact
    states = site.scan(kind, converted, normal_dim(dim, len(x.size)), stored=stored)
    if states.dtype == dtype:
        return states
    return site.tensor(lambda point: cast(states.at(point), dtype))


def _extreme(kind: str) -> Lowering:
    """cummax and cummin: the extreme so far, and the position of its last occurrence."""

    def lowering(site: Site, x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if not x.size:
            zero = constant(torch.int64, 0)
            return site.tensor(x.at), site.tensor(lambda point: zero, torch.int64)
        wide = compute_dtype(x.dtype)
        values = _states(site, f"cum{kind}", x, dim, x.dtype, wide)
        converted = Tensor(wide, x.size, lambda point: x.at(point, wide))
        return values, site.scan(f"cumarg{kind}", converted, normal_dim(dim, len(x.size)))

    return lowering


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.cumsum.default: _scan("cumsum"),
    aten.cumprod.default: _scan("cumprod"),
    aten.logcumsumexp.default: _scan("logcumsumexp"),
    aten.cummax.default: _extreme("max"),
    aten.cummin.default: _extreme("min"),
}
