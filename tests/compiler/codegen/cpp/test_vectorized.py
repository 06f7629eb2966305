"""Loops that g++ should vectorize: whether it does, and whether the results are right."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cpp_kernels import built, kernels, kernels_as_eager, scalar_loops
from judge import about, assert_as_eager, assert_same, compiled

KERNEL = """
extern "C" void kernel(const float* __restrict__ in, float* __restrict__ out) {{
#pragma omp simd
  for (long i = 0; i < 1024; ++i) out[i] = {0}({0}({0}(in[i], in[i + 1]), in[i + 2]), in[i + 3]);
}}
"""


JOINED = """
extern "C" void joined(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out) {{
#pragma omp simd
  for (int64_t i = 0; i < {rows}; ++i) {{
    const bool first = i < {of_first};
    {values}
    {stores}
  }}
}}
"""


@pytest.mark.parametrize("columns", [2, 3, 5])
@pytest.mark.parametrize(("rows", "of_first"), [(4, 2), (6, 3), (12, 5), (100, 70)])
def test_rows_of_two_joined_tensors_are_read_correctly(
    tmp_path: Path, rows: int, of_first: int, columns: int
) -> None:
    """For some sizes, g++ 12 masks out the loads of the second tensor, knowing the range of i."""
    values = [
        f"float t{k}; if (first) {{ t{k} = x[i * {columns} + {k}]; }}"
        f" else {{ t{k} = y[i * {columns} + {k - of_first * columns}]; }}"
        for k in range(columns)
    ]
    stores = [f"out[i * {columns} + {k}] = t{k};" for k in range(columns)]
    text = JOINED.format(
        rows=rows, of_first=of_first, values="\n".join(values), stores="\n".join(stores)
    )
    built(text, tmp_path)
    x, y = torch.arange(1.0, 1000.0), -torch.arange(1.0, 1000.0)
    out = torch.zeros(rows, columns)
    kernel = ctypes.CDLL(str(tmp_path / "kernel.so")).joined
    kernel(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y, out)))
    first = x[: of_first * columns].view(-1, columns)
    second = y[: (rows - of_first) * columns].view(-1, columns)
    assert torch.equal(out, torch.cat([first, second]))


@pytest.mark.parametrize("off", [["fuse"], ["fuse", "codegen.vectorize"], ["codegen"]])
def test_statistics_of_joined_tensors_are_those_of_eager(off: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.neg(x)
        return F.batch_norm(torch.cat((y, y)), None, None, training=True)

    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(function, options={"off": off})(x), function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_short_rows_joined_to_themselves_are_read_from_both(dtype: torch.dtype) -> None:
    """The columns of a row are read in one loop, on either side of one comparison."""

    def joined(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [F.batch_norm(torch.cat((x, x)), None, None, training=True) for x in inputs]

    inputs = [torch.randn(n, c, dtype=dtype) for n in (5, 17, 33) for c in (2, 3)]
    torch.testing.assert_close(compiled(joined)(*inputs), joined(*inputs))


@pytest.mark.parametrize("name", ["maximum_", "minimum_", "fmax_", "fmin_"])
def test_the_maximum_of_several_numbers_is_vectorized(tmp_path: Path, name: str) -> None:
    done = built(KERNEL.format(name), tmp_path, "-fopt-info-vec-optimized")
    assert "loop vectorized" in done.stderr


def ones(*size: int) -> torch.Tensor:
    return torch.randn(size)


REDUCTIONS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "first and last axis": (lambda x: x.sum((0, 2)), [ones(8, 16, 256)]),
    "first and last axis, half a chunk": (lambda x: x.sum((0, 2)), [ones(8, 4, 784)]),
    "first and last axis, many chunks": (lambda x: x.sum((0, 2)), [ones(3, 4, 2500)]),
    "short last axis": (lambda x: x.sum((0, 2)), [ones(40, 4, 31)]),
    "short last axis, many chunks": (lambda x: x.sum((0, 2)), [ones(2100, 2, 9)]),
    "short axes": (lambda x: x.square().sum((0, 1, 3)), [ones(8, 16, 4, 40)]),
    "product": (lambda x: (1 + x * 1e-3).prod(1), [ones(16, 2500)]),
    "mean of planes": (lambda x: x.mean((0, 2, 3)), [ones(16, 3, 7, 7)]),
    "variance": (lambda x: torch.var_mean(x, (0, 2)), [ones(16, 4, 100)]),
    "of bfloat16": (lambda x: x.sum((0, 2)), [ones(8, 4, 256).bfloat16()]),
    "extremes": (lambda x: (x.amax((0, 2)), x.amin((0, 2))), [ones(8, 4, 256)]),
    "rows with statistics": (
        lambda x, a, b, c: ((x - a) * b / c).exp().sum(-1),
        [ones(64, 300), ones(64, 1), ones(64, 1), ones(64, 1)],
    ),
    "choice by a number": (
        lambda x, t: torch.where(t == 0, 0.0, x.abs().log() * t).sum(-1),
        [ones(64, 300), ones(1)],
    ),
    "function of a relu": (
        lambda x: x.relu().tanh().clamp(-5, 5).exp().logsumexp(-1),
        [ones(64, 300)],
    ),
    "choice by a row": (
        lambda x, t: torch.where(t > 0, x.exp(), x * t),
        [ones(64, 300), ones(64, 1)],
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REDUCTIONS)
def test_every_loop_of_a_reduction_is_vectorized(tmp_path: Path, name: str) -> None:
    function, inputs = REDUCTIONS[name]
    text = kernels_as_eager(function, inputs)
    assert "#pragma omp simd" in text
    assert scalar_loops(text, tmp_path) == []


ROW = torch.randn(70, 44)
GUARDED: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "padded logarithm": (
        lambda x: F.pad((x.abs() + 1).log()[:, 1:], (1, 0)).log1p().mean(),
        [ROW],
    ),
    "joined sines": (lambda x, y: torch.cat([x.sin(), y.cos()], 1).sum(1), [ROW, ROW]),
    "padded twice": (lambda x: F.pad(F.pad(x.sin(), (3, 0)).tan(), (0, 5)).amax(1), [ROW]),
    "doubles": (lambda x: F.pad(x.exp(), (3, 4)).sum(1), [ROW.double()]),
    "bfloat16": (lambda x: F.pad(x.tanh(), (3, 4)).log1p().sum(1), [ROW.bfloat16()]),
    "not reduced": (lambda x: F.pad(x.tanh(), (3, 4)).sin(), [ROW]),
    "sine": (lambda x: torch.where(x > 0, 1 / x.sin(), x), [ROW]),
    "sine or cosine": (lambda x: torch.where(x > 0, x.sin(), x.cos() * 2), [ROW]),
    "sine in doubles": (lambda x: torch.where(x > 0, x.sin(), x).sum(1), [ROW.double()]),
    "sine in bfloat16": (lambda x: torch.where(x > 0, x.sin(), x), [ROW.bfloat16()]),
    "power": (lambda x, y: torch.where(x == 0, 0.0, x * y.abs().pow(x - 1)), [ROW, ROW]),
    "sinc": (torch.sinc, [ROW]),
    "trigamma": (lambda x: torch.polygamma(1, x.abs() + 0.1), [ROW]),
}


@pytest.mark.parametrize("name", GUARDED)
def test_a_function_on_one_side_of_a_choice_is_vectorized(tmp_path: Path, name: str) -> None:
    function, inputs = GUARDED[name]
    text = kernels(function, *inputs)
    assert scalar_loops(text, tmp_path) == []
    torch._dynamo.reset()
    assert_as_eager(compiled(function), function, inputs)


def test_the_side_that_is_not_chosen_reports_no_error() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.pad((7 // y) * x.log(), (3, 4)).sum(1)

    inputs = [ROW.abs() + 1, torch.arange(1, 45)]
    assert_as_eager(compiled(function), function, inputs)


@pytest.mark.parametrize("offset", [0, -2])
def test_an_integer_of_a_row_is_compared_with_indices_of_32_bits(
    tmp_path: Path, offset: int
) -> None:
    """No integer that does not fit in 32 bits equals one that does, nor does a negative one."""
    given = [0, 5, 100, -1, -2, 101, 1 << 32, (1 << 32) + 5, (1 << 31) + 5, -(1 << 31), -(1 << 63)]
    rows = torch.tensor(given)

    def function(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places = torch.arange(101) + offset if offset else torch.arange(101)
        hit, other = places == rows[:, None], rows[:, None] != places
        return torch.where(hit, 2.0, 0.5), torch.where(other, 2.0, 0.5)

    text = kernels_as_eager(function, [rows], exact=True)
    assert ("count_or_none" in text) == (offset == 0)  # with -2, some indices are negative
    assert not scalar_loops(text, tmp_path)


def test_an_index_beyond_32_bits_is_compared_exactly() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(2**31 - 4, 2**31 + 4)
        return torch.where(place >= 2**31, x, -x) + (place == 2**31 - 1)

    assert compiled(function)(torch.ones(8)).tolist() == [-1, -1, -1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_a_choice_by_an_invariant_keeps_every_bit(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.5, -2.0, 3.0]).to(dtype).repeat(2, 20)

    def function(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return torch.where(row > 0, x, -x)

    row = torch.tensor([[1.0], [-1.0]])
    assert_as_eager(compiled(function), function, [x, row], exact=True)


PLACES = torch.randint(-300, 300, (64, 200), generator=torch.Generator().manual_seed(0))
GATHERS: dict[str, tuple[Callable[..., Any], bool]] = {
    "alone": (lambda x, i: x[i], False),
    "scaled": (lambda x, i: x[i] * 2 + 1, False),
    "sum": (lambda x, i: x[i].sum(-1), False),
    "function": (lambda x, i: x[i].exp() + 1, True),
    "maximum": (lambda x, i: x[i].amax(-1), True),
    "sum of functions": (lambda x, i: F.gelu(x[i]).sum(-1), True),
    "two tables": (lambda x, i: x[i].tanh() * x[i + 1], True),
    "columns": (lambda x, i: x[i.t()].sigmoid().sum(0), True),
    "everything": (lambda x, i: x[i].exp().sum(), True),
}


@pytest.mark.parametrize("name", GATHERS)
def test_loops_that_read_through_indices_are_vectorized_if_they_compute(
    tmp_path: Path, name: str
) -> None:
    function, vectorized = GATHERS[name]
    x, places = ones(300), PLACES.clamp(-300, 298)
    text = kernels_as_eager(function, [x, places])
    assert ("missed" in text) == vectorized
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize("name", GATHERS)
def test_a_vectorized_loop_reports_an_index_out_of_range(name: str) -> None:
    torch._dynamo.reset()
    f = compiled(GATHERS[name][0])
    places = PLACES.clamp(-300, 298)
    f(ones(300), places)
    for place, position in product((300, -301, 2**40), (0, 77, -1)):
        wrong = places.clone()
        wrong.view(-1)[position] = place
        with about(place=place, position=position), pytest.raises(IndexError):
            f(ones(300), wrong)


def test_lanes_run_along_the_elements_that_are_neighbours_in_memory() -> None:
    row, column = ones(64, 1), ones(1, 300)
    by_rows = kernels(lambda x, a, b, c: (x * a * b * c).sum(1), ones(64, 300), row, row, row)
    by_columns = kernels(
        lambda x, a, b, c: (x * a * b * c).sum(0), ones(64, 300), column, column, column
    )
    assert "int lanes" not in by_rows
    assert "int lanes" in by_columns


MASK, OTHER_MASK = torch.arange(64 * 300).view(64, 300) % 3 == 0, torch.randn(64, 300) > 0
MASKED: dict[str, Callable[..., Any]] = {
    "gradient of relu": lambda x, m, n: torch.where(m, 0.0, x),
    "choice of two tensors": lambda x, m, n: torch.where(m, x, x * 2 + 1),
    "choice of bools": lambda x, m, n: torch.where(m, n, x > 0),
    "joined masks": lambda x, m, n: torch.where((m & ~n) | (x > 1), x, 0.0),
    "mask and value": lambda x, m, n: (m ^ n, torch.where(m, x, 0.0)),
    "dropout": lambda x, m, n: x * m * 2,
    "negated": lambda x, m, n: ~m,
    "count": lambda x, m, n: m.sum(-1),
    "any and all": lambda x, m, n: ((m & n).any(-1), (m | n).all(-1)),
    "masked extremes of columns": lambda x, m, n: torch.where(m, 0.0, x).amax(0),
    "function": lambda x, m, n: torch.where(m, x.exp(), 0.0),
    "bfloat16": lambda x, m, n: torch.where(m, 0.0, x.bfloat16()),
    "double": lambda x, m, n: torch.where(m, 0.0, x.double()),
    "bytes": lambda x, m, n: torch.where(m, 1, n.to(torch.uint8)),
    "int64": lambda x, m, n: torch.where(m, 1, n.to(torch.int64)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", MASKED)
def test_loops_over_bools_in_memory_are_vectorized(tmp_path: Path, name: str) -> None:
    inputs = [ones(64, 300), MASK, OTHER_MASK]
    text = kernels_as_eager(MASKED[name], inputs)
    assert "#pragma omp simd" in text
    assert scalar_loops(text, tmp_path) == []


NUMBERS = torch.randn(64, 300, generator=torch.Generator().manual_seed(0)) * 10
OPERATIONS: dict[str, tuple[Callable[..., Any], torch.dtype]] = {
    "sine and cosine": (lambda x: x.sin() * x.cos(), torch.float32),
    "sine and cosine of doubles": (lambda x: x.sin() * x.cos(), torch.float64),
    "remainder": (lambda x: x % 0.7, torch.float32),
    "fmod": (lambda x: torch.fmod(x, x.flip(0)), torch.float32),
    "floor division": (lambda x: x // 0.3, torch.float32),
    "floor division of numbers": (lambda x: torch.floor_divide(x, x.flip(0)), torch.float32),
    "positions as numbers": (lambda x: torch.arange(300) * x, torch.float32),
    "choice between integers": (lambda x: torch.where(x < 0, 1, -1) * x, torch.float32),
    "truth as an integer": (lambda x: (x > 0).long() * x, torch.float32),
    "log of gamma": (lambda x: x.lgamma(), torch.float32),
    "arithmetic in float16": (lambda x: x * 2 + 1, torch.float16),
    "choice in float16": (lambda x: torch.where(x > 0, x, x * 0.5), torch.float16),
    "relu in float16": (lambda x: x.relu(), torch.float16),
    "sum in float16": (lambda x: x.sum(-1), torch.float16),
    "softmax in float16": (lambda x: x.softmax(-1), torch.float16),
    "log of sigmoid": (lambda x: F.logsigmoid(x), torch.float32),
    "log of a sum of exponentials": (lambda x: torch.logaddexp(x, -x), torch.float32),
    "softplus in bfloat16": (lambda x: F.softplus(x), torch.bfloat16),
    "selu": (lambda x: F.selu(x), torch.float32),
    "functions of bounded numbers": (lambda x: x.clamp(-1, 1).exp().log1p(), torch.float32),
    "function of a relu": (lambda x: x.relu().tanh().exp(), torch.float32),
    "function of a choice": (lambda x: torch.where(x > 0, x, 1.0).log(), torch.float32),
    "function of a bounded choice": (lambda x: x.clamp(1, 3).log().expm1(), torch.bfloat16),
    "hard functions": (lambda x: F.hardswish(x) + F.hardtanh(x), torch.bfloat16),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPERATIONS)
def test_loops_over_operations_with_branches_in_c_are_vectorized(tmp_path: Path, name: str) -> None:
    function, dtype = OPERATIONS[name]
    text = kernels_as_eager(function, [NUMBERS.to(dtype)])
    assert "#pragma omp simd" in text
    assert scalar_loops(text, tmp_path) == []


@pytest.mark.parametrize("neighbour", [-1, 0, 1])
def test_a_quotient_beside_a_whole_number_is_rounded_down_as_in_eager(neighbour: int) -> None:
    generator = torch.Generator().manual_seed(0)
    divisor = torch.randn(1 << 16, generator=generator)
    bits = torch.randint(0, 27, divisor.shape, generator=generator)
    whole = (torch.randn(divisor.shape, generator=generator) * torch.exp2(bits)).trunc()
    dividend = whole * divisor
    if neighbour:
        dividend = torch.nextafter(dividend, torch.full_like(dividend, neighbour * torch.inf))
    special = torch.tensor([0.0, -0.0, 1.0, -3.5, 1e-45, -3e38, torch.inf, -torch.inf, torch.nan])
    pairs = torch.cartesian_prod(special, special)
    given = [torch.cat([dividend, pairs[:, 0]]), torch.cat([divisor, pairs[:, 1]])]
    assert_as_eager(compiled(torch.floor_divide), torch.floor_divide, given, exact=True)


OF_INTEGERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "to float64": lambda i: i.double(),
    "to a function of float32": lambda i: (i.float() * 0.01).sin(),
    "to a power of 2": lambda i: 2.0**i,
    "from float32": lambda i: i.float().mul(0.01).exp().long(),
    "from float64": lambda i: i.double().mul(0.3).exp().long(),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_conversions_of_64_bit_integers_are_vectorized_without_avx512(
    tmp_path: Path, name: str
) -> None:
    numbers = torch.arange(-2000, 2000)
    text = kernels_as_eager(OF_INTEGERS[name], [numbers])
    assert "#pragma omp simd" in text or "for simd" in text
    assert scalar_loops(text, tmp_path, "haswell") == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[(x[0] * 9).long().clamp(0, 63)],
        lambda x: (x * 1000).long() % 7,
        lambda x: (x * 9).long().cumsum(1).float(),
    ],
    ids=["places", "remainders", "scans"],
)
def test_conversions_in_loops_that_are_not_vectorized_are_instructions(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    text = kernels_as_eager(function, [NUMBERS])
    assert "(int64_t)(t" in text
    assert "to_int64" not in text
    assert "to_float(" not in text


def test_64_bit_integers_are_rounded_to_floats_as_in_eager() -> None:
    def every(i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with_function = i.float() + torch.ones_like(i).double().log().float()  # by `to_float`
        return with_function, i.float(), i.double(), i.half(), i.bfloat16()

    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**24), 2**24, (1 << 16,), generator=generator) * 2 + 1
    between = odd << torch.randint(0, 38, odd.shape, generator=generator)  # two floats
    near = between + torch.randint(-2, 3, odd.shape, generator=generator)
    limits = torch.tensor([0, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**32, 2**32 - 1])
    numbers = torch.cat([between, near, limits])
    assert_as_eager(
        compiled(every),
        every,
        [numbers],
        exact=True,
    )
    floats = near.double() * 0.37
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.5, 2.0**63, -(2.0**63), 2.0**32])
    floats = torch.cat([floats, special.double(), torch.nextafter(special, special * 0).double()])
    assert_as_eager(
        compiled(lambda x: (x.long(), x.float().long())),
        lambda x: (x.long(), x.float().long()),
        [floats],
        exact=True,
    )


def test_every_float16_is_converted_as_eager_converts_it() -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    between = torch.nextafter(every.float(), torch.tensor(0.0))
    middle = (every[1:].float() + every[:-1].float()) / 2
    floats = torch.cat([every.float(), between, middle, torch.tensor([1e30, -1e30, 65519.0])])
    assert_as_eager(compiled(lambda x: x.float()), lambda x: x.float(), [every], exact=True)
    assert_as_eager(compiled(lambda x: x.half()), lambda x: x.half(), [floats], exact=True)


@pytest.mark.parametrize("y", [0.3, -7.0, 1e-45, 3.4e38, torch.inf, 0.0, torch.nan])
def test_remainders_are_exact_for_all_magnitudes(y: float) -> None:
    powers = 2.0 ** torch.arange(-149, 128).double()
    x = torch.cat([powers, -powers * 1.37, torch.tensor([0.0, -0.0, torch.inf, torch.nan])]).float()
    found = compiled(lambda x: torch.fmod(x, y))(x)
    divisor = torch.tensor(y).item()
    expected = [
        math.fmod(v, divisor) if math.isfinite(v) and divisor else math.nan for v in x.tolist()
    ]
    assert_same(found, torch.tensor(expected), exact=True)


SCANS: dict[str, tuple[Callable[..., Any], torch.dtype]] = {
    "of a function": (lambda x: x.tanh().cumsum(1) * 2, torch.float32),
    "before a function": (lambda x: F.gelu(x.cumsum(1)), torch.float32),
    "between functions": (
        lambda x: (x.exp().cumsum(1), x.sigmoid().cumsum(1).tanh()),
        torch.float32,
    ),
    "of bfloat16": (lambda x: F.gelu((x.tanh() + x).cumsum(1)) + x, torch.bfloat16),
    "products": (lambda x: (x.tanh() * 0.1 + 1).cumprod(1), torch.float32),
    # An exact function: where two values differ by rounding, eager finds the maximum elsewhere.
    "positions": (lambda x: torch.fmod(x, 0.7).cummax(1).indices, torch.float32),
    "of columns": (lambda x: x.tanh().cumsum(0), torch.float32),
    "of planes": (lambda x: x.view(8, 8, 300).exp().cumsum(2) * 2, torch.float32),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SCANS)
def test_operands_of_a_scan_are_computed_in_vectors(tmp_path: Path, name: str) -> None:
    function, dtype = SCANS[name]
    x = NUMBERS.clamp(-4, 4).to(dtype)
    text = kernels_as_eager(function, [x])
    assert "#pragma omp simd" in text
    assert scalar_loops(text, tmp_path) == []


def test_a_scan_that_overwrites_its_input_reads_it_first() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        sums = x.tanh().cumsum(1)
        x.copy_(sums.tanh())
        return sums + x

    x, y = NUMBERS.clone(), NUMBERS.clone()
    assert_same(compiled(function)(x), function(y))
    assert_same(x, y)
