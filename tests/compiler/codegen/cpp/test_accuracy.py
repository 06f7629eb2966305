"""The errors of the prelude's functions, in units in the last place of float32.

The reference is float64. Results below the smallest normal number are left out: eager's formulas
flush or cancel there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from judge import assert_same, compiled
from torch.nn import functional as F

Function = Callable[[torch.Tensor], torch.Tensor]
INF, NAN = float("inf"), float("nan")
HUGE = 3.4e38

BOUNDS: dict[str, tuple[Function, float, float, float]] = {
    # name: function, smallest and largest argument, units in the last place
    "exp": (torch.exp, -87, 89, 1.5),
    "exp2": (torch.exp2, -126, 128, 1.0),
    "expm1": (torch.expm1, -20, 89, 2.0),
    "log": (torch.log, 0, HUGE, 1.0),
    "log2": (torch.log2, 0, HUGE, 2.0),
    "log10": (torch.log10, 0, HUGE, 2.0),
    "log1p": (torch.log1p, -1, HUGE, 2.0),
    "sin": (torch.sin, -1e4, 1e4, 2.0),
    "cos": (torch.cos, -1e4, 1e4, 2.0),
    "tan": (torch.tan, -1e4, 1e4, 4.0),
    "asin": (torch.asin, -1, 1, 3.0),
    "acos": (torch.acos, -1, 1, 2.0),
    "atan": (torch.atan, -HUGE, HUGE, 2.0),
    "sinh": (torch.sinh, -89, 89, 2.0),
    "cosh": (torch.cosh, -89, 89, 3.0),
    "tanh": (torch.tanh, -20, 20, 2.0),
    "asinh": (torch.asinh, -HUGE, HUGE, 2.0),
    "acosh": (torch.acosh, 1, HUGE, 2.0),
    "atanh": (torch.atanh, -1, 1, 2.0),
    "erf": (torch.erf, -6, 6, 3.0),
    "erfc": (torch.erfc, -6, 9, 2.0),
    "lgamma": (torch.lgamma, 0.1, 1e6, 3.0),
    "sqrt": (torch.sqrt, 0, HUGE, 0.5),
    "rsqrt": (torch.rsqrt, 0, HUGE, 2.0),
    "sigmoid": (torch.sigmoid, -87, 90, 4.0),
    "silu": (F.silu, -80, 80, 4.0),
    "softplus": (F.softplus, -80, 80, 4.0),
}


def arguments(low: float, high: float, count: int = 60_000) -> torch.Tensor:
    """Half evenly over the range (or its middle, if it is huge), half over all exponents."""
    generator = torch.Generator().manual_seed(7)
    even = torch.empty(count).uniform_(max(low, -1e6), min(high, 1e6), generator=generator)
    exponents = torch.empty(count, dtype=torch.float64).uniform_(-126, 128, generator=generator)
    signs = torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
    spread = (torch.exp2(exponents) * signs).clamp(low, high).float()
    return torch.cat([even, spread])


def units_off(found: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The distance from the reference, in units in the last place of the reference in float32."""
    rounded = reference.float().abs()
    unit = torch.nextafter(rounded, torch.tensor(INF)).double() - rounded.double()
    unit = torch.where(unit.isfinite(), unit, 2.0**104)
    normal = rounded.isfinite() & (rounded >= 2.0**-126)
    return torch.where(normal, (found.double() - reference).abs() / unit, 0.0)


def results(inputs: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The result of each function for its input. One compile has a kernel for each."""
    functions = [function for function, *_ in BOUNDS.values()]

    def together(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [function(x) for function, x in zip(functions, inputs, strict=True)]

    found = compiled(together, options={"off": ["fuse.horizontal"]})(*inputs)
    return dict(zip(BOUNDS, found, strict=True))


@pytest.fixture(scope="module")
def in_single() -> dict[str, torch.Tensor]:
    """The results of all functions in float32."""
    return results([arguments(low, high) for _, low, high, _ in BOUNDS.values()])


@pytest.fixture(scope="module")
def in_double() -> dict[str, torch.Tensor]:
    """The results of all functions in float64, for fewer arguments."""
    return results([arguments(low, high, 2000).double() for _, low, high, _ in BOUNDS.values()])


@pytest.mark.sampled
@pytest.mark.parametrize("name", BOUNDS)
def test_the_error_of_a_function_is_within_its_stated_bound(
    name: str, in_single: dict[str, torch.Tensor]
) -> None:
    function, low, high, bound = BOUNDS[name]
    x = arguments(low, high)
    found, reference = in_single[name], function(x.double())
    off = units_off(found, reference)
    worst = int(off.argmax())
    assert off[worst] <= bound, f"{off[worst]:.2f} units off at {x[worst].item()!r}"
    beyond = ~reference.float().isfinite()
    assert_same(found[beyond], reference.float()[beyond], exact=True)


def test_the_measure_of_errors_sees_one_unit() -> None:
    one = torch.ones(3)
    next_up = torch.nextafter(one, torch.tensor(2.0))
    assert units_off(next_up, one.double()).tolist() == [1.0, 1.0, 1.0]


def test_erf_is_within_one_unit_where_gelu_adds_one_to_it() -> None:
    """Near -1 only the absolute error matters: erf(x) + 1 keeps half of it."""
    x = -torch.linspace(2, 6, 400_001)
    off = (compiled(torch.erf)(x).double() - torch.erf(x.double())).abs()
    assert float(off.max()) <= 2.0**-24
    sums = compiled(lambda t: 1 + torch.erf(t))(torch.tensor([-4.5, -1e30, -INF]))
    assert sums.tolist() == [0.0, 0.0, 0.0]


OWN = ("erf", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2")
"""The functions that are not the library's in float32."""


@pytest.mark.parametrize("name", OWN)
def test_functions_of_the_embedded_compiler_cover_all_exponents_and_signs(name: str) -> None:
    function, _, _, bound = BOUNDS[name]
    bits = torch.arange(-(2**31), 2**31, 4099, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    found, reference = compiled(function)(x), function(x.double())
    assert torch.equal(found.isnan(), reference.isnan())
    kept = ~reference.isnan()
    assert torch.equal(found[kept].signbit(), reference[kept].signbit())
    assert torch.equal(found.isinf(), reference.float().isinf())
    assert float(units_off(found[kept], reference[kept]).max()) <= bound
    subnormal = kept & (reference.abs() < 2.0**-126)
    off = (found.double() - reference).abs()[subnormal]
    assert (off <= 2.0**-149).all()


def test_a_nan_with_any_payload_stays_nan_in_bfloat16() -> None:
    bits = [0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0x7F80FFFF]
    bits += [b - 2**31 for b in bits]
    x = torch.tensor(bits * 8, dtype=torch.int64).to(torch.int32).view(torch.float32)
    assert compiled(lambda t: t.bfloat16())(x).isnan().all()


EDGES = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, INF, -INF, NAN, 1e-45, -1e-45, HUGE, -HUGE, 100.0]


@pytest.mark.parametrize("vectorize", [True, False])
def test_edges_of_all_functions_are_those_of_eager(vectorize: bool) -> None:
    functions = [entry[0] for entry in BOUNDS.values()]

    def everything(x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in functions]

    options = {"off": [] if vectorize else ["codegen.vectorize"]}
    x = torch.tensor(EDGES * 3)
    for name, found, expected in zip(
        BOUNDS, compiled(everything, options=options)(x), everything(x), strict=True
    ):
        assert torch.equal(found.isnan(), expected.isnan()), name
        assert torch.equal(found.isinf(), expected.isinf()), name
        torch.testing.assert_close(
            found,
            expected,
            rtol=1e-5,
            atol=1e-37,
            equal_nan=True,
            msg=lambda m, n=name: f"{n}: {m}",
        )


LIMITS = [-746, -745.2, -709, -708, 709.7, 709.8, 711, -1076, -1075, -1022, 1023.9, 1024, 1025]
LIMITS += [-41, -39, -7.1, -6.9, 27.2, 27.4, 5e-324, 1e-310, 1.7e308]
"""Where functions in float64 underflow, overflow, or nearly do."""


NOT_IN_DOUBLE = {"sinh", "cosh"}
"""Functions whose results at an edge differ in eager too, between vectors and single numbers."""


@pytest.mark.parametrize("name", sorted(set(BOUNDS) - NOT_IN_DOUBLE))
def test_edges_in_double_are_those_of_eager(name: str) -> None:
    function = BOUNDS[name][0]
    x = torch.tensor([*EDGES, *LIMITS] * 2, dtype=torch.float64)
    found, expected = compiled(function)(x), function(x)
    torch.testing.assert_close(found, expected, rtol=2e-14, atol=1e-322, equal_nan=True)
    known = ~expected.isnan()
    assert torch.equal(found[known].signbit(), expected[known].signbit())


@pytest.mark.parametrize(
    "name", ["log", "log2", "log10", "log1p", "asin", "acos", "acosh", "atanh"]
)
def test_nan_outside_of_a_domain_has_the_sign_of_eager(name: str) -> None:
    function = BOUNDS[name][0]
    x = torch.tensor([{"acosh": 0.5, "atanh": 2.0, "asin": 2.0, "acos": 2.0}.get(name, -2.0)] * 20)
    for given in (x, x.double(), *([] if name == "atanh" else [torch.full((20,), NAN)])):
        assert torch.equal(compiled(function)(given).signbit(), function(given).signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_powers_of_all_edges_are_those_of_c(dtype: torch.dtype) -> None:
    power = ctypes.CDLL("libm.so.6").pow
    power.restype, power.argtypes = ctypes.c_double, (ctypes.c_double, ctypes.c_double)
    numbers = torch.tensor([*EDGES, 3.0, -3.0, 2.5, -2.5, 1e30, -1e30], dtype=dtype)
    x, y = (t.flatten() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    found = compiled(torch.pow)(x, y)
    expected = torch.tensor(
        [power(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype=torch.float64
    ).to(dtype)
    precision = {torch.float32: 4e-7, torch.float64: 1e-15}[dtype]
    torch.testing.assert_close(found, expected, rtol=precision, atol=1e-45, equal_nan=True)
    known = ~expected.isnan()
    assert torch.equal(found[known].signbit(), expected[known].signbit())
    for exponent in (2.5, -1.3, 3.0, 7.0, -3.0):
        constant = compiled(lambda t, e=exponent: t**e, dynamic=False)(numbers)
        assert_same(constant, compiled(torch.pow)(numbers, torch.full_like(numbers, exponent)))


@pytest.mark.parametrize("name", sorted(set(BOUNDS) - {"tan", "sin", "cos"}))
def test_a_function_in_double_is_close_to_eager(
    name: str, in_double: dict[str, torch.Tensor]
) -> None:
    function, low, high, _ = BOUNDS[name]
    expected = function(arguments(low, high, 2000).double())
    torch.testing.assert_close(in_double[name], expected, rtol=2e-14, atol=1e-300)


def test_values_stay_inside_their_ranges() -> None:
    x = arguments(-30, 30)
    bounded = compiled(lambda t: (t.tanh(), t.erf(), t.sin(), t.sigmoid(), t.exp()))(x)
    for values, (low, high) in zip(
        bounded, [(-1, 1), (-1, 1), (-1, 1), (0, 1), (0, INF)], strict=True
    ):
        assert low <= float(values.min())
        assert float(values.max()) <= high


@pytest.mark.parametrize("count", [1, 1023, 1024, 1025, 100_000])
def test_a_long_sum_keeps_its_accuracy(count: int) -> None:
    x = torch.full((count,), 0.1)
    found = compiled(lambda t: t.sum())(x)
    exact = count * float(x[0].double())
    assert abs(float(found) - exact) / exact < 2e-6


def test_a_sum_does_not_depend_on_the_number_of_threads() -> None:
    f = compiled(lambda t: (t.sum(), t.sum(0), t.var()))
    x = torch.randn(300, 500)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(f(x))
    finally:
        torch.set_num_threads(threads)
    assert_same(found[1], found[0], exact=True)
    assert_same(found[2], found[0], exact=True)
