"""Lowerings of operators that make tensors from numbers."""

from __future__ import annotations

import torch

from tcdebug.compiler.ir.build import call, cast, compute_dtype, index_value
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten
prims = torch.ops.prims


def full(site: Site, size: object, value: Operand, **kwargs: object) -> Tensor:
    """Return a tensor with equal elements."""
    element = site.operand(value, site.dtype)
    return site.tensor(lambda point: element(()))


def full_like(site: Site, x: Tensor, value: Operand, **kwargs: object) -> Tensor:
    """Return a tensor with equal elements and the size of another tensor."""
    return full(site, None, value)


def zeros(site: Site, *args: object, **kwargs: object) -> Tensor:
    """Zeros."""
    return full(site, None, 0)


def ones(site: Site, *args: object, **kwargs: object) -> Tensor:
    """Ones."""
    return full(site, None, 1)


def scalar_tensor(site: Site, value: Operand, **kwargs: object) -> Tensor:
    """Return a 0-d tensor of a number."""
    return full(site, None, value)


def _progression(site: Site, start: Operand, step: Operand) -> Tensor:
    dtype = site.dtype
    compute = compute_dtype(dtype)
    if dtype == torch.bool:
        raise NotLowered("arange of bool")
    if dtype.is_floating_point:
        # eager computes float results in double
        compute = torch.float64

    def element(point: Point) -> Expr:
        position = cast(index_value(point[0]), compute)
        if step == 1 and start == 0:
            return cast(position, dtype)
        scaled = call("mul", position, site.scalar(step, compute))
        return cast(call("add", site.scalar(start, compute), scaled), dtype)

    return site.tensor(element)


def arange(site: Site, start: Operand, end: Operand, step: Operand = 1, **kwargs: object) -> Tensor:
    """start, start + step, ..."""
    return _progression(site, start, step)


def iota(site: Site, length: Operand, *, start: Operand, step: Operand, **kwargs: object) -> Tensor:
    """start, start + step, ..., with a given length."""
    return _progression(site, start, step)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.full.default: full,
    aten.full_like.default: full_like,
    aten.zeros.default: zeros,
    aten.zeros_like.default: zeros,
    aten.new_zeros.default: zeros,
    aten.ones.default: ones,
    aten.ones_like.default: ones,
    aten.new_ones.default: ones,
    aten.new_full.default: lambda site, x, size, value, **k: full(site, None, value),
    aten.scalar_tensor.default: scalar_tensor,
    aten.arange.start_step: arange,
    prims.iota.default: iota,
}
