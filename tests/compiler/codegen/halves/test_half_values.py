"""codegen.half_values: bfloat16 and float16 values as floats, and roundings that are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cpp_kernels import kernels
from judge import assert_as_eager, compiled
from torch.nn import functional as F

HALVES = [torch.bfloat16, torch.float16]
Function = Callable[..., Any]


def every(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a half type, with infinities and NaNs."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).view(256, 256)


def exact(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> Any:
    """Operations that give numbers of the type, each one followed by another."""
    return (
        x.abs().neg(),
        torch.where(mask, x.relu(), y.neg()),
        torch.where(mask, x.float(), y.float()).to(x.dtype),
        torch.maximum(x, y).clamp(-1.5, 3),
        x.floor().ceil() if x.dtype == torch.bfloat16 else x.trunc().round(),
        torch.copysign(x.abs(), y).sign() + 0 * mask,
        x.abs() * mask,
        (x * y.sign()).neg(),
        torch.minimum(x * mask, -y).amax(-1).neg(),
        (x + x).neg() if x.dtype == torch.bfloat16 else (x - 0).neg(),
    )


def inexact(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> Any:
    """Operations that must round, each one followed by another."""
    return (
        (x * 2).neg(),
        (x * 0.5).abs(),
        (x + y).relu() - x,
        (x / 3).clamp(-2, 1e4) * y,
        torch.where(mask, x * y, x).neg() + torch.where(mask, x, y * 1e-3),
        (mask.long() * 257 + 2049).to(x.dtype).neg(),
        (x.double() / 3).to(x.dtype).abs(),
        x.to(torch.float16).to(torch.bfloat16).neg(),
        (x.float() * 1.0001).to(x.dtype).abs().float(),
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("function", [exact, inexact])
def test_results_are_those_of_eager_for_all_numbers(function: Function, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = every(dtype)
    y = x.flip(0).roll(77, 1).contiguous()
    mask = torch.arange(2**16).view(256, 256) % 3 == 0
    assert_as_eager(compiled(function), function, [x, mask, y], exact=True)


def test_what_a_scan_reads_is_computed_in_vectors_as_if_it_were_rounded_by_conversions() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.cumsum(1) * 0.01 + y).cumsum(1)

    inputs = [torch.randn(64, 300).bfloat16() for _ in range(2)]
    torch._dynamo.reset()
    assert "piece_scanned" in kernels(function, *inputs, off=("codegen.half_values",))
    torch._dynamo.reset()
    assert "piece_scanned" in kernels(function, *inputs)


def test_only_roundings_that_change_a_value_are_written() -> None:
    def roundings(function: Function, dtype: torch.dtype = torch.bfloat16) -> int:
        torch._dynamo.reset()
        inputs = (torch.randn(64, 300).to(dtype) for _ in range(2))
        text = kernels(function, *inputs, off=("codegen.pairs", "codegen.float16_rows"))
        return text.count(" to_") + text.count(" round_")

    assert roundings(lambda x, y: torch.where(x > y, x.abs().neg().relu(), -y).clamp(-1, 0.5)) == 0
    assert roundings(lambda x, y: torch.where(x > y, x * 2, -(y * 4)).abs()) == 0
    assert roundings(lambda x, y: (x * 2).abs(), torch.float16) == 1
    assert roundings(lambda x, y: (x * 0.5).abs()) == 1
    assert roundings(lambda x, y: (x * (y > 0)).relu()) == 0
    assert roundings(lambda x, y: (x * y.sign()).relu()) == 0
    assert roundings(lambda x, y: (x + x).relu() - 0.0) == 0
    assert roundings(lambda x, y: (x + x).relu(), torch.float16) == 1
    assert roundings(lambda x, y: (x * 0.3).neg() * 2 + y) == 2
    assert roundings(lambda x, y: x.clamp(-0.25, 3), torch.float16) == 0
    assert roundings(lambda x, y: x.abs().to(torch.float16)) == 1


def test_a_nan_needs_a_choice_only_if_it_may_have_digits_that_bfloat16_lacks() -> None:
    def choices(function: Function, *inputs: torch.Tensor) -> int:
        torch._dynamo.reset()
        text = kernels(function, *inputs, off=("codegen.pairs",))
        return text.count(" to_bfloat16(") + text.count(" round_to_bfloat16(")

    x = torch.randn(64, 300).bfloat16()
    assert choices(lambda x, y: (x * y).exp() / 3 - y.sqrt(), x, x) == 0
    assert choices(lambda x, y: (x + y).sum(-1) * y.amax(-1), x, x) == 0
    assert choices(lambda x: x.log() * 2 - x.tanh(), x) == 0
    assert choices(lambda x: x.lgamma() * 2, x) == 1
    assert choices(lambda x, y: (x + y).bfloat16(), x, x.float()) == 1
    assert choices(lambda x: (x / 3).bfloat16(), x.double()) == 1
    assert choices(lambda x: (x * 3).bfloat16(), x.half()) == 1


FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "erf", "erfc",
    "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
)  # fmt: skip


def test_a_function_of_a_number_of_bfloat16_has_no_nan_with_more_digits() -> None:
    x = torch.cat([every(torch.bfloat16).flatten(), torch.tensor([-2.0, torch.inf, torch.nan])])

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        return [getattr(x, name)() for name in FUNCTIONS]

    for name, result in zip(FUNCTIONS, compiled(function)(x.float()), strict=True):
        assert bool(result.isnan().any()), name
        assert not bool((result[result.isnan()].view(torch.int32) & 0xFFFF).any()), name


def test_every_nan_of_float_stays_one() -> None:
    bits = [0x7FFFFFFF, -1, 0x7F800001, 0x7FFF8000, 0x7FC00000, -0x3F0000, 0x7FA0FFFF]
    x = torch.tensor(bits, dtype=torch.int32).view(torch.float32).repeat(40)
    y = torch.ones(280).bfloat16()

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rounded = x.bfloat16()
        return rounded, rounded * y - 3, (x * y).bfloat16().abs(), (x.double() + 1).bfloat16() / y

    torch._dynamo.reset()
    assert all(t.isnan().all() for t in compiled(function)(x, y))


def shapes(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Values that are stored and read again, kept for a later sweep, transposed, moved."""
    product, quotient = x * y + x, x / y / (x - y) / 3
    return (
        (product, product.relu() - y),
        quotient - quotient.amax(-1, keepdim=True),
        (x * y).neg() - (x * y).amin(0, keepdim=True),
        (x.view(-1, 4, 20).mT * 3).relu().amax(-1),
        (x.t() + y.view(80, 64)).abs() * 2,
        (quotient.cummax(1)[0].neg() + y) / x / y,
        torch.nn.functional.pad(x * y, (1, 2)).relu() + 1,
        torch.cat([x * 3, y.relu()], 1).abs() - 1,
        x[:, torch.arange(79, -1, -3)].square().neg() * 3,
        y.mul_(x).relu_().add_(x.sign()),
        (x.float() * y + x).to(x.dtype) * y,
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_values_that_cross_loops_are_rounded_as_in_eager(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    inputs = [torch.randn(64, 80, generator=torch.Generator().manual_seed(k)) for k in (1, 2)]
    assert_as_eager(compiled(shapes), shapes, [x.to(dtype) for x in inputs], exact=True)


def moved(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> Any:
    """Operations that convert numbers to floats and back, and change none."""
    wide, other = x.float(), y.float()
    return (
        torch.where(mask, wide, other).to(x.dtype),
        torch.cat([wide, other], 1).to(x.dtype),
        wide.flip(1).to(x.dtype),
        F.interpolate(wide[None, None], scale_factor=2, mode="nearest").to(x.dtype),
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_numbers_that_are_only_moved_are_not_converted(dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = every(dtype)
    mask = torch.arange(2**16).view(256, 256) % 3 == 0
    assert_as_eager(compiled(moved), moved, [x, mask, x.flip(0)], exact=True)
    torch._dynamo.reset()
    text = kernels(moved, x, mask, x.flip(0))
    assert "_bfloat16(" not in text
    assert "_float16(" not in text
    assert "widen(" not in text
