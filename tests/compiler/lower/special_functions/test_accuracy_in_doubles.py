"""Errors of special functions in float64, in units in the last place, compared with eager's.

The reference is mpmath. A bound is the measured error, raised by about a half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import pytest
import torch
from exact_functions import DIGITS, SPECIAL, incomplete_gamma, units_off, zeta
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import compiled
from mpmath import mp

COUNT = 64
"""Arguments per call of the kernel, which is compiled for this size."""


@dataclass(frozen=True)
class Bound:
    """A bound on an open interval: units in the last place, and the allowed excess over eager."""

    low: float
    high: float
    units: float
    of_eager: float = 2.0


BOUNDS: dict[str, tuple[Bound, ...]] = {
    "i0": (Bound(-709, 709, 5),),
    "i0e": (Bound(-1e9, 1e9, 8),),
    "i1": (Bound(-709, 709, 11),),
    "i1e": (Bound(-1e9, 1e9, 9),),
    "k0": (Bound(0, 2, 7), Bound(1.9, 700, 4)),
    "k1": (Bound(0, 2, 5), Bound(1.9, 700, 4)),
    "k0e": (Bound(0, 2, 7), Bound(1.9, 1e9, 4)),
    "k1e": (Bound(0, 2, 5), Bound(1.9, 1e9, 4)),
    "j0": (Bound(-1e9, 1e9, 6),),
    "j1": (Bound(-1e9, 1e9, 6),),
    "y0": (Bound(0, 1e9, 14),),
    "y1": (Bound(0, 1e9, 7),),
    "spherical_j0": (Bound(-1e9, 1e9, 2),),
    # rounding of the angle and of the exponent 2 / 3 x^1.5
    "airy_ai": (
        Bound(-1000, -100, 60_000), Bound(-100, -2, 500), Bound(-2, 2, 5), Bound(2, 20, 130),
        Bound(20, 104, 400),
    ),
    "digamma": (Bound(0, 1e300, 18, of_eager=3), Bound(-1000, 0, 18)),
    "trigamma": (Bound(0, 1e9, 8), Bound(-1000, 0, 8)),
    "erfcx": (Bound(-26.6, 1e9, 8),),
    "erfinv": (Bound(-1, 1, 6, of_eager=8),),
    "ndtri": (Bound(0, 1, 4),),
}  # fmt: skip

MAGNITUDES = [
    m * 10.0**e for e in (-300, -30, -8, -4, -2, -1, 0, 1, 2, 3, 4, 8) for m in (1.1, 4.3)
]
GRID = [
    *(k / 4 + 1e-3 for k in range(-120, 121)),
    *(sign * m for m in MAGNITUDES for sign in (1, -1)),
    *(k / 40 for k in range(1, 40)),
    *(sign * (1 - 10.0**-k) for k in range(2, 16, 2) for sign in (1, -1)),
    *(
        zero + off
        for zero in (2.404825557695773, 5.520078110286311, 3.8317059702075125, 7.0155866698)
        for off in (-1e-3, -1e-7, 0, 1e-7)
    ),
    *(split + off for split in (1.5, 2, 6, 7, 10, -2) for off in (0, 1e-9)),
    *(k + off for k in range(-4, 1) for off in (-1e-3, -1e-9, 1e-5)),
    *(600.5, 700.1, 709.0, 713.5, -700.1, -26.0, -25.5, 745.0, 1e300),
    *(5e-324, 1.5e-323, 1e-310, 1e-31),
]  # fmt: skip
DRAWN = st.one_of(st.floats(-30, 30), st.floats(0, 1), st.floats(-1000, 1000), st.floats())


@cache
def kernel() -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """All functions, compiled once."""
    torch._dynamo.reset()
    return compiled(lambda x: [special.function(x) for special in SPECIAL.values()])


def worst(numbers: list[float]) -> dict[tuple[str, Bound], tuple[float, float, float]]:
    """For each function and interval: our largest error, where it is, and eager's largest."""
    found: dict[tuple[str, Bound], tuple[float, float, float]] = {}
    for start in range(0, len(numbers), COUNT):
        some = numbers[start : start + COUNT]
        x = torch.tensor((some * COUNT)[:COUNT], dtype=torch.float64)
        ours = [v.tolist() for v in kernel()(x)]
        for (name, special), mine in zip(SPECIAL.items(), ours, strict=True):
            theirs = special.function(x).tolist()
            for bound, place in product(BOUNDS[name], range(len(some))):
                at = some[place]
                if not bound.low < at < bound.high:
                    continue
                with mp.workdps(DIGITS):
                    truth = special.exact(mp.mpf(at))
                    scale = special.amplitude(at)
                    off = units_off(mine[place], truth, scale)
                    before = found.get((name, bound), (-1.0, 0.0, 0.0))
                    eager = max(before[2], units_off(theirs[place], truth, scale))
                found[name, bound] = (*max(before[:2], (off, at)), eager)
    return found


@pytest.mark.slow
def test_the_error_of_special_functions_of_doubles_is_within_its_bound() -> None:
    for (name, bound), (off, at, eager) in worst(GRID).items():
        assert off <= bound.units, (name, at)
        assert off <= max(bound.of_eager * eager, 2), (name, at, eager)


@pytest.mark.slow
@given(st.lists(DRAWN, min_size=COUNT, max_size=COUNT))
@settings(derandomize=True, deadline=None, max_examples=6, database=None)
def test_errors_for_random_doubles_are_within_their_bounds(numbers: list[float]) -> None:
    for (name, bound), (off, at, _) in worst(numbers).items():
        assert off <= bound.units, (name, at)


GAMMA_PAIRS = [
    *product(
        (1e-300, 1e-12, 1e-5, 1e-3, 0.12, 0.13, 0.5, 1), (1e-300, 1e-9, 0.1, 1.49, 1.5, 9, 700)
    ),
    *(
        (a, a * f)
        for a in (2.5, 30, 170.5, 399, 401, 1999, 2001, 9000.5)
        for f in (0.1, 0.5, 0.87, 0.88, 0.99, 1, 1.001, 1.12, 1.13, 1.5, 2.9)
    ),
]
ZETA_PAIRS = [
    *product((1.01, 1.5, 2, 3, 7.25, 20, 300), (1e-5, 0.3, 1, 2.5, 11.9, 12, 40, 1e4, 1e15)),
    (40, 52),
    (64, 76.5),
    (100, 112),
    (100, 125),
    *product((2, 3, 8, 21), (-0.5, -0.001, -1.999, -3.3, -40.75, -999.5)),
]


def in_pairs(
    function: Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]],
    pairs: list[tuple[float, float]],
) -> tuple[list[list[float]], list[list[float]]]:
    """Our values and eager's for pairs of arguments."""
    first, second = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    torch._dynamo.reset()
    ours, theirs = compiled(function)(first, second), function(first, second)
    return [v.tolist() for v in ours], [v.tolist() for v in theirs]


def test_incomplete_gamma_functions_have_full_precision() -> None:
    ours, theirs = in_pairs(lambda a, x: [torch.igamma(a, x), torch.igammac(a, x)], GAMMA_PAIRS)
    for place, (a, x) in enumerate(GAMMA_PAIRS):
        for which, truth in enumerate(incomplete_gamma(mp.mpf(a), mp.mpf(x))):
            off = units_off(ours[which][place], truth)
            assert off <= 4, (which, a, x, off)
            assert off <= max(2, 2 * units_off(theirs[which][place], truth)), (which, a, x)


def test_incomplete_gamma_functions_of_huge_numbers() -> None:
    pairs = [(1e10, 1e10), (1e6, 1.005e6), (1e6, 0.995e6), (1e15, 1.1e15), (1e300, 2e300)]
    (p, q), _ = in_pairs(lambda a, x: [torch.igamma(a, x), torch.igammac(a, x)], pairs)
    # 1 / 2 + 1 / (3 sqrt(2 pi a)) by DLMF 8.12.7 at eta = 0, then by 8.9.2 and 8.7.1 with 60 digits
    assert p == pytest.approx(
        [0.5000013298076013, 0.999999701250986, 2.749580359270071e-07, 1, 1], rel=1e-15
    )
    assert q == pytest.approx(
        [0.4999986701923987, 2.987490140114635e-07, 0.9999997250419641, 0, 0], rel=1e-15
    )


def test_incomplete_gamma_functions_have_the_limits_of_eager() -> None:
    edges = [0.0, -0.0, 0.25, 1.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan")]
    pairs = list(product(edges, edges))
    for mine, eager in zip(
        *in_pairs(lambda a, x: [torch.igamma(a, x), torch.igammac(a, x)], pairs), strict=True
    ):
        for pair, one, other in zip(pairs, mine, eager, strict=True):
            if pair not in ((1e308, 1e308),):  # 1/2, where eager has 0 and 1
                assert one == pytest.approx(other, rel=1e-13, nan_ok=True), pair


def test_zeta_has_full_precision() -> None:
    ours, theirs = in_pairs(lambda s, q: [torch.special.zeta(s, q)], ZETA_PAIRS)
    for place, (s, q) in enumerate(ZETA_PAIRS):
        truth = zeta(mp.mpf(s), mp.mpf(q))
        # below 0, terms of both signs cancel
        amplitude = abs(q - round(q)) ** -s if q < 0 else 0.0
        off = units_off(ours[0][place], truth, amplitude)
        assert off <= 6, (s, q, off)
        assert off <= max(2, 2 * units_off(theirs[0][place], truth, amplitude)), (s, q)


def test_zeta_of_a_huge_negative_number_terminates() -> None:
    pair = [torch.tensor([v], dtype=torch.float64) for v in (2.0, -1e15 - 0.5)]
    found = compiled(torch.special.zeta)(*pair)  # pi^2 / sin(pi / 2)^2, less zeta(2, 1e15)
    assert found.item() == pytest.approx(9.869604401089357, rel=1e-15)


PAIRS_OF_FLOATS = [
    *product((1e-6, 1e-3, 0.12, 0.13, 0.5, 1, 2.5, 6.9, 7.1), (1e-6, 0.1, 1.6, 4.9, 5.1, 30)),
    *((a, a * f) for a in (30, 63, 65, 399, 401, 1e5) for f in (0.5, 0.87, 0.88, 0.99, 1.01, 1.13)),
]


def test_functions_of_pairs_of_floats_are_exact_to_the_last_places() -> None:
    def every(a: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.igamma(a, x), torch.igammac(a, x), torch.special.zeta(a + 1, x)]

    first, second = torch.tensor(PAIRS_OF_FLOATS).unbind(1)
    torch._dynamo.reset()
    found = torch.stack(compiled(every)(first, second)).T.tolist()
    for a, x, s, values in zip(
        first.tolist(), second.tolist(), (first + 1).tolist(), found, strict=True
    ):
        exact = *incomplete_gamma(mp.mpf(a), mp.mpf(x)), zeta(mp.mpf(s), mp.mpf(x))
        for which, (value, truth) in enumerate(zip(values, exact, strict=True)):
            if 2.0**-126 < truth < 2.0**127:
                assert value == pytest.approx(float(truth), rel=4e-6, abs=0), (which, a, x)
