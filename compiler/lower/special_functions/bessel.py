"""Lowerings of Bessel and Airy functions.

Ranges and the forms that keep zeros exact are those of Moshier's Cephes library ("Methods and
Programs for Mathematical Functions", 1989); the asymptotic forms are Hankel's (Abramowitz and
Stegun 9.2.5, 9.7.2, 10.4.59). The series in them are fits of our own, see `chebyshev_rows`.
"""

from __future__ import annotations

from math import inf, nan, pi, sqrt

import torch

from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.special_functions import chebyshev_rows as rows
from tcdebug.compiler.lower.special_functions.chebyshev import series
from tcdebug.compiler.lower.special_functions.formula import Term, formula, polynomial, where

aten = torch.ops.aten


def _exp(x: Term) -> Term:
    return x.apply("exp")


def _i0(x: Term, scale: Term | float) -> Term:
    """The modified function of order 0, times scale * exp(-|x|)."""
    size = x.apply("abs")
    near = series(rows.I0E_NEAR, size, 0, 8)
    far = series(rows.I0E_FAR, 8 / size, 0, 1)
    return where(size <= 8, near * scale, far * scale / size.apply("sqrt"))


def _i1(x: Term, scale: Term | float) -> Term:
    """The same of order 1."""
    size = x.apply("abs")
    near = series(rows.I1E_NEAR, size, 0, 8) * size
    far = series(rows.I1E_FAR, 8 / size, 0, 1)
    value = where(size <= 8, near * scale, far * scale / size.apply("sqrt"))
    return where(x < 0, -value, value)


def i0(x: Term) -> Term:
    """The modified Bessel function of the first kind of order 0."""
    return _i0(x, _exp(x.apply("abs")))


def i0e(x: Term) -> Term:
    """The same times exp(-|x|)."""
    return _i0(x, 1.0)


def i1(x: Term) -> Term:
    """The modified Bessel function of the first kind of order 1."""
    return _i1(x, _exp(x.apply("abs")))


def i1e(x: Term) -> Term:
    """The same times exp(-|x|)."""
    return _i1(x, 1.0)


def _k(near: Term, far: Term, x: Term, *, scaled: bool) -> Term:
    """A modified function of the second kind out of its two ranges."""
    tail = far / x.apply("sqrt")
    value = where(x <= 2, near * _exp(x) if scaled else near, tail if scaled else tail * _exp(-x))
    return where(x < 0, nan, where(x.equals(0), inf, value))


def _k0(x: Term, *, scaled: bool) -> Term:
    log = (x * 0.5).apply("log")
    near = series(rows.K0_NEAR, x * x, 0, 4) - log * i0(x)
    return _k(near, series(rows.K0_FAR, 2 / x, 0, 1), x, scaled=scaled)


def _k1(x: Term, *, scaled: bool) -> Term:
    log = (x * 0.5).apply("log")
    near = log * i1(x) + series(rows.K1_NEAR, x * x, 0, 4) / x
    return _k(near, series(rows.K1_FAR, 2 / x, 0, 1), x, scaled=scaled)


def k0(x: Term) -> Term:
    """The modified Bessel function of the second kind of order 0."""
    return _k0(x, scaled=False)


def k0e(x: Term) -> Term:
    """The same times exp(x)."""
    return _k0(x, scaled=True)


def k1(x: Term) -> Term:
    """The modified Bessel function of the second kind of order 1."""
    return _k1(x, scaled=False)


def k1e(x: Term) -> Term:
    """The same times exp(x)."""
    return _k1(x, scaled=True)


J0_ZEROS = (5.783185962946785, 30.471262343662087)
J1_ZEROS = (14.681970642123893, 49.2184563216946)
"""The squares of the first two zeros: a zero is a factor, so that values beside it are right."""


def _near_j0(x: Term) -> Term:
    z = x * x
    return (z - J0_ZEROS[0]) * (z - J0_ZEROS[1]) * series(rows.J0_NEAR, z, 0, 25)


def _near_j1(x: Term) -> Term:
    z = x * x
    return x * (z - J1_ZEROS[0]) * (z - J1_ZEROS[1]) * series(rows.J1_NEAR, z, 0, 25)


def _far(x: Term, order: int, first: str, second: str, sign: float) -> Term:
    """Hankel's form sqrt(2 / (pi x)) (P first(c) + sign Q second(c)), c = x - phase."""
    inverse = 5 / x
    u = inverse * inverse
    even, odd = (rows.J0_P, rows.J0_Q) if order == 0 else (rows.J1_P, rows.J1_Q)
    turned = x - (order / 2 + 0.25) * pi
    p, q = series(even, u, 0, 1), series(odd, u, 0, 1) * inverse
    total = p * turned.apply(first) + sign * (q * turned.apply(second))
    return total * sqrt(2 / pi) / x.apply("sqrt")


def j0(x: Term) -> Term:
    """The Bessel function of the first kind of order 0."""
    size = x.apply("abs")
    return where(size <= 5, _near_j0(size), _far(size, 0, "cos", "sin", -1.0))


def j1(x: Term) -> Term:
    """The Bessel function of the first kind of order 1."""
    size = x.apply("abs")
    value = where(size <= 5, _near_j1(size), _far(size, 1, "cos", "sin", -1.0))
    return where(x < 0, -value, value)


def y0(x: Term) -> Term:
    """The Bessel function of the second kind of order 0."""
    log = x.apply("log") * (2 / pi)
    near = series(rows.Y0_NEAR, x * x, 0, 25) + log * _near_j0(x)
    value = where(x <= 5, near, _far(x, 0, "sin", "cos", 1.0))
    return where(x < 0, nan, where(x.equals(0), -inf, value))


def y1(x: Term) -> Term:
    """The Bessel function of the second kind of order 1."""
    log = x.apply("log")
    near = x * series(rows.Y1_NEAR, x * x, 0, 25) + (_near_j1(x) * log - 1 / x) * (2 / pi)
    value = where(x <= 5, near, _far(x, 1, "sin", "cos", 1.0))
    return where(x < 0, nan, where(x.equals(0), -inf, value))


def spherical_j0(x: Term) -> Term:
    """sin(x) / x; by its series near 0, and 0 at infinity."""
    z = x * x
    near = polynomial(z, [1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1])
    value = where(x.apply("abs") < 0.5, near, x.apply("sin") / x)
    return where(x.apply("isinf"), 0.0, value)


AIRY_ZETA = 2 * 2**1.5 / 3
"""2/3 x^(3/2) where x is 2: from there on, to both sides, the asymptotic forms are used."""
AIRY_IS_ZERO = 103.892


def airy_ai(x: Term) -> Term:
    """The Airy function; NaN at infinity, as eager has it."""
    size = x.apply("abs")
    root = size.apply("sqrt")
    zeta = size * root * (2 / 3)
    fourth = root.apply("sqrt") * sqrt(pi)
    u = AIRY_ZETA / zeta
    turned = zeta + pi / 4
    sine = turned.apply("sin") * series(rows.AIRY_SINE, u * u, 0, 1)
    cosine = turned.apply("cos") * u * series(rows.AIRY_COSINE, u * u, 0, 1)
    decayed = series(rows.AIRY_DECAY, u, 0, 1) * _exp(-zeta) * 0.5
    far = where(x < 0, sine - cosine, decayed) / fourth
    value = where(size <= 2, series(rows.AIRY_NEAR, x, -2, 2), far)
    return where(x.apply("isinf"), nan, where(x > AIRY_IS_ZERO, 0.0, value))


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.i0.default: formula(i0),
    aten.special_i0e.default: formula(i0e),
    aten.special_i1.default: formula(i1),
    aten.special_i1e.default: formula(i1e),
    aten.special_modified_bessel_i0.default: formula(i0),
    aten.special_modified_bessel_i1.default: formula(i1),
    aten.special_modified_bessel_k0.default: formula(k0),
    aten.special_modified_bessel_k1.default: formula(k1),
    aten.special_scaled_modified_bessel_k0.default: formula(k0e),
    aten.special_scaled_modified_bessel_k1.default: formula(k1e),
    aten.special_bessel_j0.default: formula(j0),
    aten.special_bessel_j1.default: formula(j1),
    aten.special_bessel_y0.default: formula(y0),
    aten.special_bessel_y1.default: formula(y1),
    aten.special_spherical_bessel_j0.default: formula(spherical_j0),
    aten.special_airy_ai.default: formula(airy_ai),
}
