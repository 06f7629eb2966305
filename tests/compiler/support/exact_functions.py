"""Special functions of torch, their exact values from mpmath, and the error of a value.

Errors are in units in the last place of the exact value. Near a zero they are in units of the
amplitude of the function, because no formula in doubles keeps the digits of sin(1e6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite, sqrt
from typing import Any

import torch
from mpmath import mp

S = torch.special
Exact = Callable[..., Any]
"""Conversions from and to mpmath's numbers."""

DIGITS = 40


def _none(x: float) -> float:
    return 0.0


def _wave(start: float) -> Callable[[float], float]:
    """The amplitude of Bessel functions from `start` on."""
    return lambda x: sqrt(2 / (torch.pi * abs(x))) if abs(x) > start else 0.0


def _airy(x: float) -> float:
    return abs(x) ** -0.25 / sqrt(torch.pi) if x < -1 else 0.0


def _one(x: float) -> float:
    return 1.0


@dataclass(frozen=True)
class Special:
    """A function of torch, its exact value, and its amplitude around its zeros."""

    function: Callable[[torch.Tensor], torch.Tensor]
    exact: Exact
    amplitude: Callable[[float], float] = _none


def _inverse_of_erfc(q: Any) -> Any:
    """The argument at which erfc is q, for q up to 1, by Newton's method on its logarithm."""
    y = mp.sqrt(-mp.log(q)) if q < 0.5 else (1 - q) * mp.sqrt(mp.pi) / 2
    for _ in range(100):
        value = mp.erfc(y)
        step = mp.log(value / q) * value * mp.exp(y * y) * mp.sqrt(mp.pi) / 2
        y += step
        if abs(step) <= abs(y) * mp.mpf(10) ** (5 - DIGITS):
            return y
    raise ArithmeticError(f"erfc is {q} nowhere")


def _erfinv(x: Any) -> Any:
    if abs(x) < 1e-8:  # the Maclaurin series
        return mp.sqrt(mp.pi) / 2 * x * (1 + mp.pi * x * x / 12)
    return mp.sign(x) * _inverse_of_erfc(1 - abs(x))


def _ndtri(p: Any) -> Any:
    if p < 0.5:
        return -mp.sqrt(2) * _inverse_of_erfc(2 * p)
    return mp.sqrt(2) * _inverse_of_erfc(2 - 2 * p)


def _polygamma(order: int) -> Exact:
    """Infinite at its poles."""
    return lambda x: mp.inf if x <= 0 and x == mp.floor(x) else mp.psi(order, x)


@cache
def _besselk(order: int, x: Any) -> Any:
    """K of this order. mpmath takes long, and two functions need each value."""
    return mp.besselk(order, x)


def _scaled(power: int, function: Exact) -> Exact:
    return lambda x: mp.exp(power * abs(x)) * function(x)


SPECIAL: dict[str, Special] = {
    "i0": Special(torch.i0, lambda x: mp.besseli(0, x)),
    "i0e": Special(S.i0e, _scaled(-1, lambda x: mp.besseli(0, x))),
    "i1": Special(S.i1, lambda x: mp.besseli(1, x)),
    "i1e": Special(S.i1e, _scaled(-1, lambda x: mp.besseli(1, x))),
    "k0": Special(S.modified_bessel_k0, lambda x: _besselk(0, x)),
    "k1": Special(S.modified_bessel_k1, lambda x: _besselk(1, x)),
    "k0e": Special(S.scaled_modified_bessel_k0, _scaled(1, lambda x: _besselk(0, x))),
    "k1e": Special(S.scaled_modified_bessel_k1, _scaled(1, lambda x: _besselk(1, x))),
    "j0": Special(S.bessel_j0, lambda x: mp.besselj(0, x), _wave(6)),
    "j1": Special(S.bessel_j1, lambda x: mp.besselj(1, x), _wave(6)),
    "y0": Special(S.bessel_y0, lambda x: mp.bessely(0, x), _wave(0.5)),
    "y1": Special(S.bessel_y1, lambda x: mp.bessely(1, x), _wave(0.5)),
    "spherical_j0": Special(
        S.spherical_bessel_j0, lambda x: mp.sinc(x), lambda x: 1 / abs(x) if abs(x) > 1 else 0.0
    ),
    "airy_ai": Special(S.airy_ai, mp.airyai, _airy),
    "digamma": Special(torch.digamma, _polygamma(0), _one),
    "trigamma": Special(lambda x: torch.polygamma(1, x), _polygamma(1)),
    "erfcx": Special(S.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x)),
    "erfinv": Special(torch.erfinv, _erfinv),
    "ndtri": Special(S.ndtri, _ndtri, _one),
}


def incomplete_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q with all digits of the smaller one, by DLMF 8.7.1, whose sum does not cancel."""
    with mp.workdps(DIGITS + (400 if a < 1 else 20)):
        density = mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1))
        if x <= a + 2:
            total = term = mp.mpf(1)
            k = 0
            while term > total * mp.eps:
                k += 1
                term *= x / (a + k)
                total += term
            return density * total, 1 - density * total
        depth = 2000 if a > 100 else 400
        fraction = x + 2 * depth + 1 - a
        for k in range(depth, 0, -1):
            fraction = x + 2 * k - 1 - a - k * (k - a) / fraction
        return 1 - density * a / fraction, density * a / fraction


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function, also for negative numbers."""
    with mp.workdps(4 * DIGITS):  # mpmath's error is absolute
        total = mp.mpf(0)
        while q < 1:
            total += q ** (-s)
            q += 1
        return total + mp.zeta(s, q)


def units_off(found: float, truth: Any, amplitude: float = 0.0) -> float:
    """The error of a double; 0 if the exact value overflows or is tiny."""
    size = max(abs(float(truth)), amplitude)
    if not isfinite(size) or size < 2.0**-1022:
        return 0.0
    if not isfinite(found):
        return inf
    unit = mp.mpf(2) ** (mp.floor(mp.log(mp.mpf(size), 2)) - 52)
    return float(abs(mp.mpf(found) - truth) / unit)
