"""Writes matrix products as loops: a sum over the common dimension, and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis, Index, to_index
from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr, Load
from tcdebug.compiler.ir.graph import Buffer, Extern, LoopNode, Pointwise, Reduction, Ref
from tcdebug.compiler.passes.aligned_products import TRANSPOSES

aten = torch.ops.aten
OPERANDS: Mapping[Callable[..., Any], int] = {
    aten.mm.default: 0,
    aten.bmm.default: 0,
    aten.addmm.default: 1,
    aten.baddbmm.default: 1,
}
"""Matrix product -> the position of its first factor. The argument before it is added."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class NotFused(Exception):
    """A product must stay an ATen call. The message says why."""


def as_loops(
    extern: Extern, buffers: Mapping[str, Buffer], calls: Mapping[str, Extern]
) -> tuple[LoopNode, ...]:
    """A product as a sum over the common dimension, followed by a node for scaling and rounding.

    `calls` are the extern calls by name; operands are read through transpositions among them.
    Raises NotFused.
    """
    out, first = extern.out, OPERANDS[extern.target]
    assert out is not None
    given = [buffers.get(a.name) if isinstance(a, Ref) else None for a in extern.args]
    left, right = given[first : first + 2]
    if left is None or right is None or any(b is None for b in given):
        raise NotFused("an operand is not a plain tensor")
    if out.dtype not in DTYPES or {b.dtype for b in given if b is not None} != {out.dtype}:
        raise NotFused(f"no template computes with {out.dtype}")
    axes = tuple(Axis(f"i{k}", size) for k, size in enumerate(out.size) if size != 1)
    depth = Axis("r0", left.size[-1])
    along = {a.name: to_index(a) for a in axes}
    where = tuple(along.get(f"i{k}", ZERO) for k in range(len(out.size)))
    wide = compute_dtype(out.dtype)
    row = (*where[:-1], to_index(depth))
    column = (*where[:-2], to_index(depth), where[-1])
    operands = [_element(b, i, buffers, calls) for b, i in ((left, row), (right, column))]
    body, origin = call("mul", *(cast(o, wide) for o in operands)), extern.origin
    if first == 0 and wide == out.dtype:
        return (Reduction(out, axes, (depth,), where, "sum", body, origin),)
    name = f"{extern.name}_sum"
    while name in buffers:
        name += "_"
    sums = replace(out, name=name, dtype=wide)
    reduction = Reduction(sums, axes, (depth,), where, "sum", body, origin)
    total: Expr = Load(wide, name, where)
    if first:
        total = _added(extern, given[0], where, total)
    return reduction, Pointwise(out, axes, where, cast(total, out.dtype), origin)


def _added(extern: Extern, bias: Buffer | None, where: Sequence[Index], total: Expr) -> Expr:
    """alpha times the sums plus beta times the bias, which is broadcast."""
    alpha, beta = (extern.kwargs.get(name, 1) for name in ("alpha", "beta"))
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        raise NotFused("its scale is not a plain number")
    if alpha != 1:
        total = call("mul", total, constant(total.dtype, alpha))
    if beta == 0:  # then the bias is ignored, NaN included
        return total
    assert bias is not None
    behind = where[len(where) - len(bias.size) :]
    place = tuple(ZERO if s == 1 else w for s, w in zip(bias.size, behind, strict=True))
    value = cast(Load(bias.dtype, bias.name, place), total.dtype)
    if beta != 1:
        value = call("mul", value, constant(total.dtype, beta))
    return call("add", total, value)


def _element(
    buffer: Buffer,
    index: Sequence[Index],
    buffers: Mapping[str, Buffer],
    calls: Mapping[str, Extern],
) -> Load:
    """Return a load of an element of an operand, from the memory behind any transpositions."""
    while (view := calls.get(buffer.name)) is not None and view.target in TRANSPOSES:
        source = buffers.get(view.alias_of or "")
        if source is None or view.kwargs or view.args[0] != Ref(source.name):
            break
        count = len(source.size)
        order = list(range(count))
        if view.target is aten.permute.default:
            order = [dim % count for dim in view.args[1]]
        elif count > 1:
            first, second = view.args[1:] or (0, 1)
            order[first], order[second] = order[second], order[first]
        index = [index[order.index(dim)] for dim in range(count)]
        buffer = source
    return Load(buffer.dtype, buffer.name, tuple(index))
