"""Special functions: eager's special values, and at least eager's accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from externs import compiled_with_reasons, reasons
from judge import compiled

S = torch.special
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "i0": torch.i0,
    "i0e": S.i0e,
    "i1": S.i1,
    "i1e": S.i1e,
    "k0": S.modified_bessel_k0,
    "k1": S.modified_bessel_k1,
    "k0e": S.scaled_modified_bessel_k0,
    "k1e": S.scaled_modified_bessel_k1,
    "j0": S.bessel_j0,
    "j1": S.bessel_j1,
    "y0": S.bessel_y0,
    "y1": S.bessel_y1,
    "spherical_j0": S.spherical_bessel_j0,
    "airy_ai": S.airy_ai,
    "digamma": torch.digamma,
    "trigamma": lambda x: torch.polygamma(1, x),
    "erfcx": S.erfcx,
    "erfinv": torch.erfinv,
    "ndtri": S.ndtri,
}
INF, NAN = float("inf"), float("nan")
EDGES = [0.0, -0.0, INF, -INF, NAN, 1, -1, -2, 0.5, -0.5, 1e-30, -1e-30, 1e-7, 2, 5, 8, 10, -3.7]
EDGES += [-26, 88, -88, 100]
KNOWN = {  # Abramowitz and Stegun, tables 6.1, 7.1, 9.1, 9.8, 10.11
    "i0": (1.0, 1.2660658777520082),
    "k1": (2.0, 0.13986588181652243),
    "j0": (1.0, 0.7651976865579666),
    "y1": (10.0, 0.24901542420695388),
    "airy_ai": (-1.0, 0.5355608832923521),
    "digamma": (1.0, -0.5772156649015329),
    "trigamma": (1.0, 1.6449340668482264),
    "erfcx": (1.0, 0.427583576155807),
    "erfinv": (0.5, 0.4769362762044699),
}


def every(x: torch.Tensor) -> list[torch.Tensor]:
    """All functions in one kernel, which is compiled once."""
    return [function(x) for function in FUNCTIONS.values()]


@dataclass(frozen=True)
class Values:
    """The values of the functions for some numbers."""

    x: torch.Tensor
    mine: list[torch.Tensor]
    theirs: list[torch.Tensor]

    def among(self, which: slice) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """For some of the numbers: function, ours, eager's."""
        for name, mine, theirs in zip(FUNCTIONS, self.mine, self.theirs, strict=True):
            yield name, mine[which], theirs[which]


@cache
def values(dtype: torch.dtype) -> Values:
    """Edge cases, then arguments with known values, then a grid; compiled once per dtype."""
    grid = torch.cat([torch.linspace(-12, 12, 2401), torch.linspace(0.001, 0.999, 999)])
    known = torch.tensor([at for at, _ in KNOWN.values()])
    x = torch.cat([torch.tensor(EDGES), known, grid]).to(dtype)
    torch._dynamo.reset()
    return Values(x, compiled(every)(x), every(x))


def test_special_functions_are_generated_for_real_numbers() -> None:
    assert reasons(every, torch.ones(3)) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_special_functions_have_the_special_values_of_eager(dtype: torch.dtype) -> None:
    rtol = 2e-5 if dtype == torch.float32 else 1e-7  # eager's j0 of doubles is no better
    edges = slice(0, len(EDGES))
    for name, mine, theirs in values(dtype).among(edges):
        close = torch.isclose(mine, theirs, rtol=rtol, atol=rtol / 10, equal_nan=True)
        assert close.all(), (name, values(dtype).x[edges][~close], mine[~close], theirs[~close])


def test_special_functions_are_as_accurate_as_those_of_eager() -> None:
    grid = slice(len(EDGES) + len(KNOWN), None)
    truths = every(values(torch.float32).x[grid].double())
    for (name, mine, theirs), truth in zip(values(torch.float32).among(grid), truths, strict=True):
        known = truth.isfinite() & theirs.isfinite()
        scale = truth[known].abs() + 0.1
        errors = [((v.double() - truth)[known].abs() / scale).max().item() for v in (mine, theirs)]
        assert errors[0] < max(3 * errors[1], 6e-6), (name, errors)


def test_special_functions_of_doubles_have_full_precision() -> None:
    places = slice(len(EDGES), len(EDGES) + len(KNOWN))
    computed = {name: mine for name, mine, _ in values(torch.float64).among(places)}
    for place, (name, (_, known)) in enumerate(KNOWN.items()):
        assert computed[name][place].item() == pytest.approx(known, rel=2e-14), name


KINDS = ("chebyshev_polynomial_", "shifted_chebyshev_polynomial_")
POLYNOMIALS = [getattr(S, kind + letter) for kind in KINDS for letter in "tuvw"]
POLYNOMIALS += [S.hermite_polynomial_h, S.hermite_polynomial_he]
POLYNOMIALS += [S.laguerre_polynomial_l, S.legendre_polynomial_p]


def test_functions_of_two_numbers_agree_with_eager() -> None:
    def function(x: torch.Tensor, n: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
        found = [polynomial(x[:, None], n) for polynomial in POLYNOMIALS]
        found += [S.zeta(n, q[:, None]), *(torch.polygamma(k, q) for k in (0, 2, 5))]
        found += [torch.nextafter(q, -q), torch.igamma(n, q[:, None]), torch.igammac(n, q[:, None])]
        return found

    x = torch.tensor([0, -0.0, 1, -1, 0.5, -0.3, 0.9, 1.5, -2, NAN, INF])
    n = torch.tensor([-1, 0, 1, 2.5, 3, 6, 7, 9, 12])
    q = torch.tensor([0.1, 0.5, 1, 5, 30, 1000, 0, -0.5, -1, -3.3, INF, NAN, 1e-5])
    once, left = compiled_with_reasons(function)
    for place, (mine, theirs) in enumerate(zip(once(x, n, q), function(x, n, q), strict=True)):
        torch.testing.assert_close(
            mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True, msg=f"the {place}th"
        )
    assert left == {}
