"""Lowerings of operators that combine elements over dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Index, product
from tcdebug.compiler.ir.build import (
    call,
    cast,
    compute_dtype,
    constant,
    index_value,
    times_reciprocal,
)
from tcdebug.compiler.ir.expr import Constant, Expr
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten


def _dims(x: Tensor, dims: Sequence[int] | int | None) -> list[int]:
    if dims is None:
        return list(range(len(x.size)))
    wanted = [dims] if isinstance(dims, int) else list(dims)
    if not wanted:
        return list(range(len(x.size)))
    return sorted({normal_dim(d, len(x.size)) for d in wanted} if x.size else set())


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return Tensor(dtype, x.size, lambda point: x.at(point, dtype))


def _rounded(site: Site, x: Tensor, position: int = 0) -> Tensor:
    """Return a reduction that was computed in a wider dtype, converted to that of the result."""
    dtype = site.result(position).dtype
    return x if x.dtype == dtype else _converted(x, dtype)


def _reduce(
    site: Site, kind: str, x: Tensor, dims: list[int], keepdim: bool, dtype: torch.dtype
) -> Tensor:
    """Reduce x over dims in the dtype of arithmetic on `dtype`."""
    compute = compute_dtype(dtype)
    layout = site.result() if compute == dtype else None
    return site.reduce(kind, _converted(x, compute), dims, keepdim=keepdim, layout=layout)


def sum_(
    site: Site,
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the sum. Half-precision types are summed in float32."""
    return _rounded(site, _reduce(site, "sum", x, _dims(x, dims), keepdim, site.dtype))


def prod(
    site: Site,
    x: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the product."""
    return _rounded(site, _reduce(site, "prod", x, _dims(x, dim), keepdim, site.dtype))


def _count(site: Site, x: Tensor, dims: list[int], dtype: torch.dtype) -> Expr:
    count = product(x.size[d] for d in dims) if dims else ONE
    return cast(index_value(count), dtype)


def mean(
    site: Site,
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the sum divided by the number of elements."""
    over = _dims(x, dims)
    compute = compute_dtype(site.dtype)
    total = site.reduce("sum", _converted(x, compute), over, keepdim=keepdim)
    count = _count(site, x, over, compute)
    result = site.dtype
    return site.tensor(lambda p: cast(_divided(site, total.at(p), count), result))


def _divided(site: Site, total: Expr, count: Expr) -> Expr:
    """Return a mean. On a GPU it is a product, as in eager, which is one instruction, not 12."""
    if site.result().device.type == "cpu":
        return call("div", total, count)
    if isinstance(count, Constant) and count.value:
        # rounded to float32 from double, a quotient is what a division in float32 gives
        return call("mul", total, constant(count.dtype, 1 / count.value))
    return times_reciprocal(total, count)


def extreme(kind: str) -> Lowering:
    """amax and amin, which propagate NaN."""

    def lower(
        site: Site, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False
    ) -> Tensor:
        return _rounded(site, _reduce(site, kind, x, _dims(x, dims), keepdim, site.dtype))

    return lower


def extreme_with_place(kind: str) -> Lowering:
    """max.dim and min.dim: the value and its position."""

    def lower(site: Site, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        dims = _dims(x, dim)
        value = _rounded(site, _reduce(site, kind, x, dims, keepdim, site.dtype))
        return value, _place(site, f"arg{kind}", x, dims, keepdim, 1)

    return lower


def _place(
    site: Site, kind: str, x: Tensor, dims: list[int], keepdim: bool, position: int
) -> Tensor:
    wide = _converted(x, compute_dtype(x.dtype if x.dtype != torch.bool else torch.uint8))
    return site.reduce(
        kind, wide, dims, keepdim=keepdim, dtype=torch.int64, layout=site.result(position)
    )


def place(kind: str) -> Lowering:
    """argmax and argmin, over one dimension or all elements in row-major order."""

    def lower(site: Site, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return _place(site, kind, x, _dims(x, dim), keepdim, 0)

    return lower


def truth(kind: str) -> Lowering:
    """any and all."""

    def lower(
        site: Site, x: Tensor, dims: Sequence[int] | int | None = None, keepdim: bool = False
    ) -> Tensor:
        reduced = site.reduce(kind, _converted(x, torch.bool), _dims(x, dims), keepdim=keepdim)
        return _rounded(site, reduced)

    return lower


FEW = 4096
"""The most elements of a half type whose sum is exact in float32 if they are equal."""


def _sums(
    site: Site, x: Tensor, dims: list[int], compute: torch.dtype
) -> tuple[torch.dtype, float]:
    """Return the dtype in which elements are added for a mean, and a factor for each of them.

    On a CPU it is double, as in eager: sums neither overflow nor lose the mean of equal numbers.
    For few numbers of a half type, float32 is enough; a power of two keeps sums of bfloat16 finite.
    A GPU adds float32 in a tree, which is as accurate as Welford's method in eager.
    """
    if site.result().device.type != "cpu":
        return compute, 1.0
    count = product(x.size[d] for d in dims).constant if dims else 1
    if compute == x.dtype or count is None or count > FEW:
        return torch.float64, 1.0
    return compute, 1.0 if x.dtype == torch.float16 else 0.5 ** (count - 1).bit_length()


def _times(value: Expr, factor: float) -> Expr:
    return value if factor == 1 else call("mul", value, constant(value.dtype, factor))


def _scaled(x: Tensor, dtype: torch.dtype, factor: float) -> Tensor:
    return Tensor(dtype, x.size, lambda point: _times(x.at(point, dtype), factor))


def _moments(
    site: Site, x: Tensor, dims: list[int], correction: Operand | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean in the dtype of arithmetic.

    There are two sweeps: one for the sum, and one for the squared deviations from the mean.
    Deviations are from the rounded mean; the square of its rounding error is subtracted afterwards.
    """
    if isinstance(correction, Index | Tensor):
        raise NotLowered("a correction that is not a number")
    compute = compute_dtype(x.dtype)
    exact, scale = _sums(site, x, dims, compute)
    count, exact_count = _count(site, x, dims, compute), _count(site, x, dims, exact)
    total = site.reduce("sum", _scaled(x, exact, scale), dims, keepdim=True)

    def exact_mean(point: Point) -> Expr:
        if exact == compute:
            return _divided(site, total.broadcast(point), _times(exact_count, scale))
        # a division in double takes longer than a short row; the difference is not seen in float
        return times_reciprocal(total.broadcast(point), exact_count)

    def mean_of(point: Point) -> Expr:
        return cast(exact_mean(point), compute)

    def squared(point: Point) -> Expr:
        distance = call("sub", x.at(point, compute), mean_of(point))
        return call("mul", distance, distance)

    squares = Tensor(compute, x.size, squared)
    scatter = site.reduce("sum", squares, dims, keepdim=True, suffix="_scatter")
    degrees = call("sub", count, site.scalar(1 if correction is None else correction, compute))
    freedom = call("maximum", degrees, constant(compute, 0))

    def variance(point: Point) -> Expr:
        found = scatter.at(point)
        if exact != compute:
            rounding = cast(call("sub", exact_mean(point), cast(mean_of(point), exact)), compute)
            added = call("mul", call("mul", rounding, rounding), count)
            # if this overflows, the square of a deviation does too, and the variance is infinite
            most = constant(compute, torch.finfo(compute).max)
            found = call("sub", found, call("minimum", added, most))
            found = call("maximum", found, constant(compute, 0))
        return call("div", found, freedom)

    full = Tensor(compute, total.size, variance), Tensor(compute, total.size, mean_of)
    if keepdim:
        return full
    kept = [k for k in range(len(x.size)) if k not in dims]

    def with_reduced(point: Point) -> Point:
        place = [ZERO] * len(x.size)
        for k, where in zip(kept, point, strict=True):
            place[k] = where
        return tuple(place)

    size = [x.size[k] for k in kept]
    return full[0].viewed(size, with_reduced), full[1].viewed(size, with_reduced)


def var(
    site: Site,
    x: Tensor,
    dims: Sequence[int] | None = None,
    *,
    correction: Operand | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Return the variance."""
    variance, _ = _moments(site, x, _dims(x, dims), correction, keepdim)
    return _converted(variance, site.dtype)


def var_mean(
    site: Site,
    x: Tensor,
    dims: Sequence[int] | None = None,
    *,
    correction: Operand | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean."""
    variance, average = _moments(site, x, _dims(x, dims), correction, keepdim)
    return _converted(variance, site.dtype), _converted(average, site.result(1).dtype)


def thin_product(site: Site, a: Tensor, b: Tensor) -> Tensor:
    """A batch of row-major matrices, each times a vector, which was measured faster than ATen's.

    A vector times a matrix is not faster, and neither is faster in half precision.
    """
    if site.result().device.type != "cpu" or site.dtype not in (torch.float32, torch.float64):
        raise NotLowered("a product")
    if b.size[2] != ONE:
        raise NotLowered("a product of matrices")
    if site.operand_value(0).stride(2) != 1 or site.operand_value(1).stride(1) != 1:
        raise NotLowered("a product along strides")

    def element(point: Point) -> Expr:
        batch, row, column, k = point
        return call("mul", a.at((batch, row, k)), b.at((batch, k, column)))

    size = (a.size[0], a.size[1], ONE, a.size[2])
    return site.reduce("sum", Tensor(site.dtype, size, element), [3], keepdim=False)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.bmm.default: thin_product,
    aten.sum.default: sum_,
    aten.sum.dim_IntList: sum_,
    aten.prod.default: prod,
    aten.prod.dim_int: prod,
    aten.mean.default: mean,
    aten.mean.dim: mean,
    aten.amax.default: extreme("max"),
    aten.amin.default: extreme("min"),
    aten.max.dim: extreme_with_place("max"),
    aten.min.dim: extreme_with_place("min"),
    aten.max.default: extreme("max"),
    aten.min.default: extreme("min"),
    aten.argmax.default: place("argmax"),
    aten.argmin.default: place("argmin"),
    aten.any.default: truth("max"),
    aten.any.dim: truth("max"),
    aten.any.dims: truth("max"),
    aten.all.default: truth("min"),
    aten.all.dim: truth("min"),
    aten.all.dims: truth("min"),
    aten.var.correction: var,
    aten.var_mean.correction: var_mean,
}
