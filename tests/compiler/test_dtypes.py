"""Every dtype: values, promotion, wrap-around, conversions, NaN and infinity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
import torch
from judge import assert_as_eager, assert_same, compiled
from torch.nn import functional as F

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]

INF, NAN = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, INF, -INF, NAN, 3e38, -3e38, 1e-40, -1e-40]


def sample(dtype: torch.dtype, size: int = 37) -> torch.Tensor:
    """Values over the whole range of a small dtype."""
    if dtype.is_floating_point:
        return torch.linspace(-9, 9, size, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.arange(size) % 3 == 0
    limits = torch.iinfo(dtype)
    edges = torch.tensor([limits.min, limits.max, limits.min + 1, limits.max - 1], dtype=dtype)
    return torch.cat([edges, torch.arange(size - 4).to(dtype) - (0 if limits.min == 0 else 16)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arithmetic_in_a_dtype(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x * y, x * 3, torch.maximum(x, y), torch.where(x > y, x, y), x == y

    x = sample(dtype)
    assert_as_eager(compiled(function), function, [x, x.flip(0)])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x - y, x * y, -x, x.abs(), x**2, x**3, ~x, x.sum(dtype=dtype), x.prod()

    x = sample(dtype)
    assert_as_eager(compiled(function), function, [x, x.flip(0)], exact=True)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_rounds_as_eager_does(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y

    x = sample(dtype)
    y = x.flip(0).clone()
    y[y == 0] = 3
    y[y == y.new_tensor(-1)] = 5  # dividing the smallest integer by -1 traps in eager
    assert_as_eager(compiled(function), function, [x, y], exact=True)


def test_the_smallest_integer_divided_by_minus_one_does_not_trap() -> None:
    f = compiled(lambda x, y: torch.div(x, y, rounding_mode="trunc"))
    x = torch.tensor([-(2**63), 7])
    assert f(x, torch.tensor([-1, -1])).tolist() == [-(2**63), -7]


def test_an_integer_division_by_zero_is_an_error() -> None:
    f = compiled(lambda x, y: x // y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        f(torch.tensor([1, 2]), torch.tensor([1, 0]))


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_a_conversion_agrees_with_eager(source: torch.dtype) -> None:
    def function(x: torch.Tensor, unsigned: torch.Tensor) -> Any:
        return [x.to(target) for target in DTYPES if target != torch.uint8], unsigned.byte()

    x = sample(source)
    # the conversion of a negative float to an unsigned integer is undefined
    inputs = [x, x.abs() if source.is_floating_point else x.clone()]
    assert_as_eager(compiled(function), function, inputs, exact=True)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_mixed_operands_are_promoted_as_in_eager(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor, zero_d: torch.Tensor, *others: torch.Tensor) -> Any:
        return x + zero_d, x + 1, x * 2.5, x / 2, [(x * y, x < y) for y in others]

    others = [sample(other).flip(0) for other in DTYPES]
    zero_d = torch.tensor(3.0, dtype=torch.float64)
    assert_as_eager(compiled(function), function, [sample(dtype), zero_d, *others])


@pytest.mark.parametrize(
    ("tensor", "zero_d"),
    [
        (torch.tensor([0, 1, 255], dtype=torch.uint8), torch.tensor(256, dtype=torch.int32)),
        (torch.tensor([0.0, 1.0, -1.0]), torch.tensor(1e-50, dtype=torch.float64)),
    ],
    ids=["wraps to zero", "rounds to zero"],
)
def test_a_0d_operand_beyond_the_range_of_the_other_is_converted_before_a_predicate(
    tensor: torch.Tensor, zero_d: torch.Tensor
) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        operators = (torch.logical_and, torch.logical_or, torch.logical_xor, torch.eq, torch.gt)
        return [operator(*pair) for operator in operators for pair in ((x, y), (y, x))]

    assert torch.logical_xor(tensor, zero_d).tolist() == [False, True, True]
    assert_as_eager(compiled(function), function, [tensor, zero_d], exact=True)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_in_a_dtype(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        found = [x.sum(0), x.sum(), x.amax(1), x.amin(0), x.any(0), x.all(1), x.prod(1)]
        return found if x.dtype == torch.bool else [*found, x.argmax(1), x.max(0)]

    x = sample(dtype, 36).reshape(9, 4)
    assert_as_eager(compiled(function), function, [x])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_types_are_rounded_after_every_operation(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> Any:
        return (x * 1.1 + x) * 0.3 - x, x.exp() - x.sin()

    assert_as_eager(compiled(function), function, [sample(dtype)], exact=True)


def test_a_float_is_rounded_to_the_nearest_half_precision_number() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.half(), x.bfloat16(), x.half().float() * 2

    x = torch.tensor([65504.0, 65519.9, 65520.0, 1e-8, 6e-8, 3e-5, INF, -INF, NAN])
    assert_as_eager(compiled(function), function, [x.repeat_interleave(9)], exact=True)


# -- NaN, infinity, the sign of zero ------------------------------------------------------------

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sign": torch.sign,
    "abs": torch.abs,
    "neg": torch.neg,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0.0),
    "clamp_max": lambda x: x.clamp_max(0.0),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "nan_to_num": torch.nan_to_num,
    "times_zero": lambda x: x * 0,
    "plus_zero": lambda x: x + 0.0,
    "minus_itself": lambda x: x - x,
    "over_itself": lambda x: x / x,
    "equal_to_itself": lambda x: x == x,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.0, -1.0),
    "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5)),
    "frac": torch.frac,
    "to_bool": lambda x: x.bool(),
    "sort": lambda x: x.sort().values,
}


def of_all(
    functions: Mapping[str, Callable[..., torch.Tensor]], *inputs: torch.Tensor
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The results of all functions, by name: those of one compile, and eager's."""

    def function(*inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: function(*inputs) for name, function in functions.items()}

    return compiled(function)(*inputs), function(*inputs)


@cache
def unary() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return of_all(UNARY, torch.tensor(SPECIAL * 2))


@pytest.mark.parametrize("name", UNARY)
def test_special_values_agree_with_eager(name: str) -> None:
    ours, eager = unary()
    assert_same(ours[name], eager[name], exact=True)


BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "div": torch.div,
    "floor_div": torch.floor_divide,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "less": torch.lt,
    "not_equal": torch.ne,
    "where": lambda x, y: torch.where(x > y, x, y),
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_any_count_agree_with_eager(dtype: torch.dtype) -> None:
    def shifts(x: torch.Tensor, count: torch.Tensor) -> list[torch.Tensor]:
        by_number = [x >> 1, x << 3, x >> 99, x << 99, x >> -1, torch.bitwise_right_shift(x, 8)]
        return [*by_number, x >> count, x << count, torch.bitwise_left_shift(x, count)]

    x = torch.tensor([-128, -7, -1, 0, 1, 5, 100, 127, 200]).to(dtype)
    counts = torch.tensor([0, 1, 7, 8, 15, 31, 63, 64, 100, -1, -2]).to(dtype)
    given = [t.flatten() for t in torch.meshgrid(x, counts, indexing="ij")]
    assert_as_eager(compiled(shifts), shifts, given, exact=True)


@cache
def binary() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    x = torch.tensor(SPECIAL)
    left, right = (t.clone() for t in torch.meshgrid(x, x, indexing="ij"))
    return of_all(BINARY, left, right)


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_special_values_agree_with_eager(name: str) -> None:
    ours, eager = binary()
    assert_same(ours[name], eager[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_square_root_is_rounded_correctly(dtype: torch.dtype) -> None:
    """Eager is one unit off for a sixth of all float32 numbers."""
    x = torch.cat([torch.rand(1000, dtype=dtype) * 100, torch.tensor(SPECIAL, dtype=dtype)])
    expected = [math.sqrt(v) if v >= 0 else v if v == 0 else NAN for v in x.tolist()]
    found = compiled(torch.sqrt)(x)
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64).to(dtype), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_a_remainder_is_exact_where_eager_overflows(name: str) -> None:
    """Eager subtracts quotient times divisor, which gives NaN if the quotient overflows."""
    left, right = (t.flatten() for t in torch.meshgrid(*[torch.tensor(SPECIAL)] * 2, indexing="ij"))
    expected = []
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        rest = NAN if b == 0 or math.isinf(a) else math.fmod(a, b)
        if name == "remainder" and rest and (rest < 0) != (b < 0):
            rest += b
        expected.append(rest)
    found = compiled(getattr(torch, name))(left, right)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", ["sum", "prod", "amax", "amin", "mean", "var"])
def test_a_reduction_over_a_special_value(kind: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return getattr(x, kind)(-1)

    x = torch.ones(7, 33)
    for row, value in ((1, NAN), (3, INF), (5, -INF)):
        x[row, 17] = value
        x[row + 1, :2] = torch.tensor([value, -value])
    assert_as_eager(compiled(function), function, [x])


def test_the_first_nan_is_the_position_of_the_extreme() -> None:
    x = torch.tensor([[1.0, NAN, NAN, 5.0], [3.0, 7.0, 7.0, -1.0]])
    found = compiled(lambda t: (t.argmax(1), t.argmin(1), t.max(1).indices))(x)
    assert [f.tolist() for f in found] == [[1, 1], [1, 3], [1, 1]]


def test_softmax_of_a_row_of_minus_infinity_is_nan() -> None:
    found = compiled(lambda t: torch.softmax(t, -1))(torch.full((2, 5), -INF))
    assert found.isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_signs_are_those_of_the_sign_bits(dtype: torch.dtype) -> None:
    x = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    x[0], x[1], x[2] = -0.0, float("nan"), -float("inf")
    assert_as_eager(compiled(torch.signbit), torch.signbit, [x.to(dtype)], exact=True)
