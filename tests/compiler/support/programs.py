"""Small functions with inputs, one for each feature of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F


@dataclass(frozen=True)
class Program:
    """A function, and a function that makes its inputs."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]


def f32(*size: int) -> torch.Tensor:
    """Normally distributed numbers, the same in each call."""
    return torch.randn(size, generator=torch.Generator().manual_seed(len(size) + sum(size)))


def i64(high: int, *size: int) -> torch.Tensor:
    """Integers from 0 to high."""
    return torch.randint(0, high, size, generator=torch.Generator().manual_seed(high))


def positive(*size: int) -> torch.Tensor:
    """Numbers above 0.1."""
    return f32(*size).abs() + 0.1


def swizzled(*size: int) -> torch.Tensor:
    """A transposed tensor, whose last dimension is not contiguous."""
    return f32(*reversed(size)).permute(*reversed(range(len(size))))


POINTWISE = [
    Program("add_mul", lambda x, y: x * y + 2.0 * x, lambda: (f32(4, 5), f32(4, 5))),
    Program("broadcast_row", lambda x, y: x - y, lambda: (f32(4, 5), f32(5))),
    Program("broadcast_both", lambda x, y: x / y, lambda: (f32(4, 1), positive(1, 5))),
    Program("scalar_tensor", lambda x, y: x * y, lambda: (f32(3, 4), f32())),
    Program("exp_log", lambda x: torch.log(torch.exp(x) + 1), lambda: (f32(33),)),
    Program("trigonometry", lambda x: x.sin() * x.cos() + x.tan().atan(), lambda: (f32(40),)),
    Program("hyperbolic", lambda x: x.tanh() + x.sinh() - x.cosh().log(), lambda: (f32(40),)),
    Program("erf_lgamma", lambda x: x.erf() + x.lgamma(), lambda: (positive(40),)),
    Program("sqrt_rsqrt", lambda x: x.sqrt() + x.rsqrt() + x.reciprocal(), lambda: (positive(40),)),
    Program("powers", lambda x: x**2 + x**3 + x**-1 + x**0.5 + x**1.7, lambda: (positive(20),)),
    Program("pow_tensor", lambda x, y: torch.pow(x, y) + 2.0**y, lambda: (positive(20), f32(20))),
    Program("where", lambda x, y: torch.where(x > y, x, y * 2), lambda: (f32(4, 5), f32(5))),
    Program("comparisons", lambda x, y: (x < y) | (x >= 0) & ~(y == x), lambda: (f32(9), f32(9))),
    Program("clamp", lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0) + F.relu(x), lambda: (f32(30),)),
    Program("rounding", lambda x: x.floor() + x.ceil() + x.trunc() + x.round(), lambda: (f32(30),)),
    Program("remainders", lambda x, y: x % y + torch.fmod(x, y), lambda: (f32(30), positive(30))),
    Program("float_floor_div", lambda x, y: x // y, lambda: (f32(30) * 10, positive(30))),
    Program("integers", lambda x, y: (x // y) * 3 - x % y, lambda: (i64(99, 20), i64(9, 20) + 1)),
    Program(
        "bits",
        lambda x, y: (x & y) | (x ^ y) + (~x << 2) + (y >> 1),
        lambda: (i64(99, 9), i64(31, 9)),
    ),
    Program(
        "activations",
        lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.hardtanh(x),
        lambda: (f32(64),),
    ),
    Program("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), lambda: (f32(64),)),
    Program(
        "casts",
        lambda x: (x.to(torch.int32) + 1).to(torch.float64) * x.half(),
        lambda: (f32(20) * 9,),
    ),
    Program(
        "logical",
        lambda x, y: torch.logical_and(x, y) ^ torch.logical_not(x),
        lambda: (i64(2, 9), i64(2, 9)),
    ),
    Program("lerp", lambda x, y: torch.lerp(x, y, 0.3), lambda: (f32(9), f32(9))),
    Program(
        "atan2_hypot", lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), lambda: (f32(9), f32(9))
    ),
    Program(
        "factories",
        lambda x: x + torch.arange(5) + torch.ones(5) + torch.full((5,), 2.5),
        lambda: (f32(4, 5),),
    ),
    Program("arange_float", lambda x: torch.arange(0.0, 2.5, 0.5) + x, lambda: (f32(5),)),
]

REDUCTIONS = [
    Program("sum_all", lambda x: x.sum(), lambda: (f32(7, 33),)),
    Program("sum_last", lambda x: x.sum(-1), lambda: (f32(7, 33),)),
    Program("sum_first", lambda x: x.sum(0), lambda: (f32(33, 70),)),
    Program("sum_middle", lambda x: x.sum(1, keepdim=True), lambda: (f32(3, 17, 5),)),
    Program("sum_two", lambda x: x.sum((0, 2)), lambda: (f32(3, 17, 5),)),
    Program("sum_bool", lambda x: (x > 0).sum(-1), lambda: (f32(7, 33),)),
    Program("sum_long", lambda x: x.sum(), lambda: (f32(5000),)),
    Program("mean", lambda x: x.mean(-1) + x.mean(), lambda: (f32(33, 33),)),
    Program("prod", lambda x: x.prod(-1), lambda: (positive(4, 6),)),
    Program("amax_amin", lambda x: x.amax(0) + x.amin(0), lambda: (f32(17, 9),)),
    Program("max_dim", lambda x: x.max(1), lambda: (f32(17, 9),)),
    Program("min_dim", lambda x: x.min(0, keepdim=True), lambda: (f32(17, 9),)),
    Program("argmax", lambda x: (x.argmax(-1), x.argmin(0), x.argmax()), lambda: (f32(17, 9),)),
    Program(
        "any_all", lambda x: ((x > 1).any(-1), (x > -1).all(0), (x > 9).any()), lambda: (f32(7, 9),)
    ),
    Program(
        "var_std", lambda x: (x.var(-1), x.std(0), x.var(1, correction=0)), lambda: (f32(17, 9),)
    ),
    Program("var_mean", lambda x: torch.var_mean(x, dim=(1, 2)), lambda: (f32(3, 4, 5),)),
    Program("norm", lambda x: torch.linalg.vector_norm(x, dim=-1), lambda: (f32(4, 9),)),
    Program("logsumexp", lambda x: torch.logsumexp(x, -1), lambda: (f32(4, 9),)),
    Program("softmax", lambda x: torch.softmax(x, -1), lambda: (f32(17, 33),)),
    Program("log_softmax", lambda x: torch.log_softmax(x, 0), lambda: (f32(17, 33),)),
    Program("layer_norm", lambda x, w: F.layer_norm(x, (33,), w), lambda: (f32(7, 33), f32(33))),
    Program("group_norm", lambda x: F.group_norm(x, 2), lambda: (f32(2, 4, 3, 3),)),
    Program("cross_entropy", lambda x, y: F.cross_entropy(x, y), lambda: (f32(8, 10), i64(10, 8))),
    Program("mse", lambda x, y: F.mse_loss(x, y), lambda: (f32(8, 10), f32(8, 10))),
    Program(
        "chain",
        lambda x: (x - x.mean(-1, keepdim=True)).pow(2).sum(-1).sqrt(),
        lambda: (f32(9, 33),),
    ),
    Program("cumsum", lambda x: x.cumsum(-1) * 2, lambda: (f32(4, 9),)),
    Program("cumprod", lambda x: x.cumprod(0) + x, lambda: (swizzled(4, 9),)),
]

VIEWS = [
    Program("transpose", lambda x: x.t() + 1, lambda: (f32(4, 5),)),
    Program("permute", lambda x: x.permute(2, 0, 1) * 2, lambda: (f32(3, 4, 5),)),
    Program("reshape", lambda x: x.reshape(10, 6).sin(), lambda: (f32(3, 4, 5),)),
    Program("reshape_strided", lambda x: x.reshape(-1) * 2, lambda: (swizzled(4, 6),)),
    Program(
        "flatten_unflatten",
        lambda x: x.flatten(1).unflatten(1, (2, 10)) + 1,
        lambda: (f32(3, 4, 5),),
    ),
    Program("slices", lambda x: x[1:, ::2] + x[:-1, 1::2], lambda: (f32(4, 6),)),
    Program("negative_slice", lambda x: x[-3:, :-2] * 2, lambda: (f32(5, 6),)),
    Program("select", lambda x: x[1] + x[-1], lambda: (f32(4, 6),)),
    Program("squeeze", lambda x: x.squeeze(1) + x.unsqueeze(0).squeeze(), lambda: (f32(4, 1, 6),)),
    Program("expand", lambda x: x.expand(3, 4, 5) * 2, lambda: (f32(4, 1),)),
    Program("diagonal", lambda x: x.diagonal() + x.diagonal(1).sum(), lambda: (f32(5, 5),)),
    Program("unfold", lambda x: x.unfold(0, 3, 2).sum(-1), lambda: (f32(9),)),
    Program("split", lambda x: [p * k for k, p in enumerate(x.split(2, 1))], lambda: (f32(4, 5),)),
    Program("chunk_unbind", lambda x: x.chunk(2)[1].unbind(1)[0] + 1, lambda: (f32(4, 5),)),
    Program("movedim", lambda x: x.movedim(0, -1).contiguous(), lambda: (f32(3, 4, 5),)),
    Program("view_returned", lambda x: (x + 1).view(-1), lambda: (f32(3, 4),)),
]

PLACES = [
    Program("cat", lambda x, y: torch.cat([x, y * 2, x], 1), lambda: (f32(3, 4), f32(3, 2))),
    Program("stack", lambda x, y: torch.stack([x, y], 1), lambda: (f32(3, 4), f32(3, 4) + 1)),
    Program("cat_promotes", lambda x, y: torch.cat([x, y]), lambda: (f32(3), i64(5, 4))),
    Program("pad", lambda x: F.pad(x, (1, 2, 3, 0), value=2.5), lambda: (f32(3, 4),)),
    Program("pad_cuts", lambda x: F.pad(x, (-1, 1)) * 2, lambda: (f32(3, 4),)),
    Program("pad_reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), lambda: (f32(2, 3, 4),)),
    Program("index_row", lambda x, i: x[i], lambda: (f32(6, 4), i64(6, 3))),
    Program("index_negative", lambda x, i: x[i - 6], lambda: (f32(6, 4), i64(6, 3))),
    Program("index_two", lambda x, i, j: x[i, j], lambda: (f32(6, 4), i64(6, 3), i64(4, 3))),
    Program(
        "index_apart", lambda x, i, j: x[i, :, j], lambda: (f32(6, 2, 4), i64(6, 3), i64(4, 3))
    ),
    Program("index_select", lambda x, i: x.index_select(1, i) + 1, lambda: (f32(6, 4), i64(4, 3))),
    Program("gather", lambda x, i: x.gather(1, i), lambda: (f32(6, 4), i64(4, 6, 2))),
    Program("take_along", lambda x: x.take_along_dim(x.argsort(1), 1), lambda: (f32(6, 4),)),
    Program("scatter", lambda x, i: x.scatter(1, i, 1.5), lambda: (f32(6, 4), i64(4, 6, 1))),
    Program(
        "scatter_add",
        lambda x, i: torch.zeros(6, 4).scatter_add(1, i, x),
        lambda: (f32(6, 4), i64(4, 6, 4)),
    ),
    Program(
        "index_add",
        lambda x, i: torch.zeros(6, 4).index_add(0, i, x),
        lambda: (f32(3, 4), i64(6, 3)),
    ),
    Program(
        "index_put",
        lambda x, i: x.index_put((i,), torch.tensor(3.0)),
        lambda: (f32(6, 4), i64(6, 3)),
    ),
    Program(
        "masked_fill",
        lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1),
        lambda: (f32(4, 9),),
    ),
    Program("embedding", lambda w, i: F.embedding(i, w) * 2, lambda: (f32(9, 4), i64(9, 2, 3))),
    Program("one_hot", lambda i: F.one_hot(i, 7), lambda: (i64(7, 5),)),
    # the same index text over axes of different sizes
    Program("flip_halves", lambda x: x.flip(0)[:3] + x.flip(0)[3:] * 2, lambda: (f32(6, 4),)),
    Program("flip_roll", lambda x: x.flip(1) + x.roll(1, 0), lambda: (f32(4, 5),)),
    Program(
        "repeat", lambda x: x.repeat(2, 3) + x.repeat_interleave(2, 0).sum(), lambda: (f32(2, 3),)
    ),
    Program("tril_triu", lambda x: x.tril() + x.triu(1) * 2, lambda: (f32(5, 5),)),
    Program(
        "slice_scatter",
        lambda x, y: torch.slice_scatter(x, y, 1, 1, 5, 2),
        lambda: (f32(3, 6), f32(3, 2)),
    ),
    Program(
        "select_scatter",
        lambda x, y: torch.select_scatter(x, y, 0, -1),
        lambda: (f32(3, 6), f32(6)),
    ),
    Program("sort_topk", lambda x: (x.sort(-1), x.topk(2)), lambda: (f32(4, 9),)),
]

EXTERNS = [
    Program("mm", lambda x, y: torch.relu(x @ y) + 1, lambda: (f32(4, 5), f32(5, 6))),
    Program(
        "addmm", lambda x, w, b: F.linear(x, w, b).sigmoid(), lambda: (f32(4, 5), f32(6, 5), f32(6))
    ),
    Program("bmm", lambda x, y: torch.bmm(x * 2, y), lambda: (f32(2, 4, 5), f32(2, 5, 3))),
    Program(
        "einsum",
        lambda x, y: torch.einsum("bij,bkj->bik", x, y),
        lambda: (f32(2, 4, 5), f32(2, 3, 5)),
    ),
    Program(
        "conv2d",
        lambda x, w: F.relu(F.conv2d(x, w, padding=1)),
        lambda: (f32(1, 3, 8, 8), f32(4, 3, 3, 3)),
    ),
    Program(
        "conv1d", lambda x, w: F.conv1d(x, w, stride=2) * 2, lambda: (f32(2, 3, 9), f32(4, 3, 3))
    ),
    Program("max_pool", lambda x: F.max_pool2d(x, 2) + 1, lambda: (f32(1, 3, 8, 8),)),
    Program("avg_pool", lambda x: F.avg_pool2d(x, 2) + 1, lambda: (f32(1, 3, 8, 8),)),
    Program("adaptive_pool", lambda x: F.adaptive_avg_pool2d(x, 1), lambda: (f32(1, 3, 8, 8),)),
    Program(
        "batch_norm",
        lambda x, m, v: F.batch_norm(x, m, v),
        lambda: (f32(2, 3, 4, 4), f32(3), positive(3)),
    ),
    Program(
        "attention",
        lambda q, k: F.scaled_dot_product_attention(q, k, q * k),
        lambda: (f32(1, 2, 8, 4), f32(1, 2, 8, 4)),
    ),
    Program("interpolate", lambda x: F.interpolate(x, scale_factor=2), lambda: (f32(1, 2, 3, 3),)),
    Program("complex", lambda x: torch.fft.fft(x).abs(), lambda: (f32(8),)),
]

PROGRAMS = [*POINTWISE, *REDUCTIONS, *VIEWS, *PLACES, *EXTERNS]
