"""Lowerings of Bessel and Airy functions.

Each function has one series near 0 and one far from it, times its asymptotic behaviour there: DLMF
10.40.1 for I, 10.31.2 and 10.40.2 for K, 10.8.2 and 10.17.3 for J and Y, 9.7.5 and 9.7.9 for Ai.
The series were fitted for this project. `chebyshev_rows` gives the fitted function and interval of
each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, nan, pi, sqrt

import torch

from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.special_functions import chebyshev_rows as rows
from tcdebug.compiler.lower.special_functions.chebyshev import Series
from tcdebug.compiler.lower.special_functions.formula import Term, formula, polynomial, where

aten = torch.ops.aten

I_SPLIT, K_SPLIT, J_SPLIT = 7.0, 1.5, 6.0
"""The arguments at which the near series ends and the far series starts: I, K, and J with Y."""

TINY = 1e-30
"""Below this, numbers are scaled up for a logarithm."""


def _exp(x: Term) -> Term:
    return x.apply("exp")


def _i0(x: Term, scale: Term | float) -> Term:
    """Return the modified function of order 0, times scale * exp(-|x|)."""
    size = x.apply("abs")
    near = rows.I0E_NEAR.at(size)
    far = rows.I0E_FAR.at(I_SPLIT / size)
    return where(size <= I_SPLIT, near * scale, far * scale / size.apply("sqrt"))


def _i1(x: Term, scale: Term | float) -> Term:
    """Return the modified function of order 1, times scale * exp(-|x|)."""
    size = x.apply("abs")
    near = rows.I1E_NEAR.at(size) * size
    far = rows.I1E_FAR.at(I_SPLIT / size)
    value = where(size <= I_SPLIT, near * scale, far * scale / size.apply("sqrt"))
    return where(x < 0, -value, value)


def i0(x: Term) -> Term:
    """Return the modified Bessel function of the first kind of order 0."""
    return _i0(x, _exp(x.apply("abs")))


def i0e(x: Term) -> Term:
    """i0(x) exp(-|x|)."""
    return _i0(x, 1.0)


def i1(x: Term) -> Term:
    """Return the modified Bessel function of the first kind of order 1."""
    return _i1(x, _exp(x.apply("abs")))


def i1e(x: Term) -> Term:
    """i1(x) exp(-|x|)."""
    return _i1(x, 1.0)


def _k(near: Term, far: Term, x: Term, *, scaled: bool) -> Term:
    """Return a modified function of the second kind, from its near and far series."""
    tail = far / x.apply("sqrt")
    near = near * _exp(x) if scaled else near
    value = where(x <= K_SPLIT, near, tail if scaled else tail * _exp(-x))
    return where(x < 0, nan, where(x.equals(0), inf, value))


def _log_of_half(x: Term) -> Term:
    """log(x / 2), also of the smallest numbers, half of which is rounded."""
    tiny = x < TINY
    value = where(tiny, x * 2.0**60, x * 0.5).apply("log")
    return where(tiny, value - 61 * log(2), value)


def _k0(x: Term, *, scaled: bool) -> Term:
    near = rows.K0_NEAR.at(x * x) - _log_of_half(x) * rows.I0_SMALL.at(x * x)
    return _k(near, rows.K0_FAR.at(K_SPLIT / x), x, scaled=scaled)


def _k1(x: Term, *, scaled: bool) -> Term:
    near = _log_of_half(x) * rows.I1_SMALL.at(x * x) * x + rows.K1_NEAR.at(x * x) / x
    return _k(near, rows.K1_FAR.at(K_SPLIT / x), x, scaled=scaled)


def k0(x: Term) -> Term:
    """Return the modified Bessel function of the second kind of order 0."""
    return _k0(x, scaled=False)


def k0e(x: Term) -> Term:
    """k0(x) exp(x)."""
    return _k0(x, scaled=True)


def k1(x: Term) -> Term:
    """Return the modified Bessel function of the second kind of order 1."""
    return _k1(x, scaled=False)


def k1e(x: Term) -> Term:
    """k1(x) exp(x)."""
    return _k1(x, scaled=True)


def _near_j0(x: Term) -> Term:
    first, second = rows.J0_ZEROS
    return first.factor(x) * (second.factor(x) * rows.J0_NEAR.at(x * x))


def _near_j1(x: Term) -> Term:
    (only,) = rows.J1_ZEROS
    return x * (only.factor(x) * rows.J1_NEAR.at(x * x))


@dataclass(frozen=True)
class _Wave:
    """The parts of J and Y far from 0: P and Q, and the sum and difference of sin(x) and cos(x).

    The angle in DLMF 10.17.3 is x - pi / 4 or x - 3 pi / 4. By the addition theorem, its sine and
    cosine are that sum and difference over sqrt(2), so the angle itself need not be rounded.
    """

    p: Term
    q: Term
    total: Term
    difference: Term

    def scaled(self, value: Term, x: Term) -> Term:
        """value / sqrt(pi x)."""
        return value / (x * pi).apply("sqrt")


def _wave(x: Term, even: Series, odd: Series) -> _Wave:
    inverse = J_SPLIT / x
    u = inverse * inverse
    sine, cosine = x.apply("sin"), x.apply("cos")
    return _Wave(even.at(u), odd.at(u) * inverse, sine + cosine, sine - cosine)


def _far_j0(x: Term) -> Term:
    w = _wave(x, rows.J0_P, rows.J0_Q)
    return w.scaled(w.p * w.total - w.q * w.difference, x)


def _far_y0(x: Term) -> Term:
    w = _wave(x, rows.J0_P, rows.J0_Q)
    return w.scaled(w.p * w.difference + w.q * w.total, x)


def _far_j1(x: Term) -> Term:
    w = _wave(x, rows.J1_P, rows.J1_Q)
    return w.scaled(w.p * w.difference + w.q * w.total, x)


def _far_y1(x: Term) -> Term:
    w = _wave(x, rows.J1_P, rows.J1_Q)
    return w.scaled(w.q * w.difference - w.p * w.total, x)


def j0(x: Term) -> Term:
    """Return the Bessel function of the first kind of order 0."""
    size = x.apply("abs")
    return where(size <= J_SPLIT, _near_j0(size), _far_j0(size))


def j1(x: Term) -> Term:
    """Return the Bessel function of the first kind of order 1."""
    size = x.apply("abs")
    value = where(size <= J_SPLIT, _near_j1(size), _far_j1(size))
    return where(x < 0, -value, value)


def y0(x: Term) -> Term:
    """Return the Bessel function of the second kind of order 0."""
    scaled = x.apply("log") * (2 / pi)
    near = rows.Y0_NEAR.at(x * x) + scaled * _near_j0(x)
    value = where(x <= J_SPLIT, near, _far_y0(x))
    return where(x < 0, nan, where(x.equals(0), -inf, value))


def y1(x: Term) -> Term:
    """Return the Bessel function of the second kind of order 1."""
    near = x * rows.Y1_NEAR.at(x * x) + (_near_j1(x) * x.apply("log") - 1 / x) * (2 / pi)
    value = where(x <= J_SPLIT, near, _far_y1(x))
    return where(x < 0, nan, where(x.equals(0), -inf, value))


def spherical_j0(x: Term) -> Term:
    """sin(x) / x, from its series near 0; 0 at infinity."""
    z = x * x
    near = polynomial(z, [1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1])
    value = where(x.apply("abs") < 0.5, near, x.apply("sin") / x)
    return where(x.apply("isinf"), 0.0, value)


AIRY_ZETA = 2 * 2**1.5 / 3
"""2/3 x^(3/2) at x = 2. The asymptotic forms are used for |x| > 2."""


def airy_ai(x: Term) -> Term:
    """Return the Airy function Ai. NaN at infinity, as in eager."""
    size = x.apply("abs")
    root = size.apply("sqrt")
    zeta = size * root * (2 / 3)
    fourth = root.apply("sqrt") * sqrt(pi)
    u = AIRY_ZETA / zeta
    turned = zeta + pi / 4
    sine = turned.apply("sin") * rows.AIRY_SINE.at(u * u)
    cosine = turned.apply("cos") * u * rows.AIRY_COSINE.at(u * u)
    decayed = rows.AIRY_DECAY.at(u) * _exp(-zeta) * 0.5
    far = where(x < 0, sine - cosine, decayed) / fourth
    value = where(size <= 2, rows.AIRY_NEAR.at(x), far)
    return where(x.apply("isinf"), nan, value)


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
