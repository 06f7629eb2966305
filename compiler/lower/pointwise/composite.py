"""Lowerings of elementwise operators that need several operations of the IR."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.ir.operations import FLOATS
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor

aten = torch.ops.aten


def angle(site: Site, x: Tensor) -> Tensor:
    """pi for negative numbers, 0 for others, NaN for NaN."""
    dtype = site.dtype
    if dtype not in FLOATS:
        raise NotLowered(f"angle of {dtype}")

    def element(value: Expr) -> Expr:
        zero = constant(dtype, 0.0)
        turned = call("where", call("lt", value, zero), constant(dtype, math.pi), zero)
        return call("where", call("isnan", value), value, turned)

    return site.tensor(lambda point: element(x.broadcast(point, dtype)))


def round_decimals(site: Site, x: Tensor, *, decimals: int) -> Tensor:
    """Rounding to decimals, or to a power of ten if negative, by rounding a scaled number."""
    dtype = site.dtype
    if dtype not in FLOATS:
        raise NotLowered(f"rounding of {dtype} to decimals")
    scale = constant(dtype, 10.0 ** abs(decimals))
    up, down = ("mul", "div") if decimals >= 0 else ("div", "mul")

    def element(value: Expr) -> Expr:
        if decimals == 0:
            return call("round", value)
        return call(down, call("round", call(up, value, scale)), scale)

    return site.tensor(lambda point: element(x.broadcast(point)))


def nextafter(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The next number towards another one. Half types would be computed as floats."""
    dtype = site.dtype
    if dtype not in FLOATS:
        raise NotLowered(f"neighbours of {dtype}")
    return site.tensor(
        lambda point: call("nextafter", x.broadcast(point, dtype), y.broadcast(point, dtype))
    )


def sigmoid(site: Site, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return _over_one_plus_exp(site, x, lambda a: constant(a.dtype, 1.0))


def silu(site: Site, x: Tensor) -> Tensor:
    """x * sigmoid(x), as x / (1 + exp(-x))."""
    return _over_one_plus_exp(site, x, lambda a: a)


def _over_one_plus_exp(site: Site, x: Tensor, dividend: Callable[[Expr], Expr]) -> Tensor:
    """Return a dividend, divided by 1 + exp(-x).

    On a GPU the exponential is that of the hardware, within 2 ulp, so a division that is rounded
    correctly, and takes twice as long, would not give eager's result either.
    """
    result, compute = site.dtype, compute_dtype(site.dtype)
    if compute not in FLOATS:
        raise NotLowered(f"kernels do not compute in {compute}")
    near = compute == torch.float32 and site.result().device.type == "cuda"
    divide = "approximate_div" if near else "div"

    def element(a: Expr) -> Expr:
        below = call("add", constant(compute, 1.0), call("exp", call("neg", a)))
        return cast(call(divide, dividend(a), below), result)

    return site.tensor(lambda point: element(x.broadcast(point, compute)))


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.angle.default: angle,
    aten.nextafter.default: nextafter,
    aten.round.decimals: round_decimals,
    aten.sigmoid.default: sigmoid,
    aten.silu.default: silu,
}
