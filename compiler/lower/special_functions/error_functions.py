"""Lowerings of functions related to the normal distribution.

erfcx: Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x" (1981).
Inverses: after Giles, "Approximating the erfinv function" (2010), series in w = -log(1 - x^2), or
in its square root for large w. The series were fitted for this project; see `chebyshev_rows`.
"""

from __future__ import annotations

from math import inf, sqrt

import torch

from tcdebug.compiler.lower.interface.site import Lowering
from tcdebug.compiler.lower.special_functions import chebyshev_rows as rows
from tcdebug.compiler.lower.special_functions.formula import Term, formula, where

aten = torch.ops.aten

ERFCX_IS_INFINITE = -30.0
"""Below this, 2 exp(x^2) overflows float64."""


def erfcx(x: Term) -> Term:
    """exp(x^2) erfc(x)."""
    size = x.apply("abs")
    # this form is 1 at infinity
    t = 1 - 7.5 / (size + 3.75)
    positive = rows.ERFCX.at(t) / (1 + 2 * size)
    # x^2 is the exact square of a number with few bits, plus a rest
    short = (x * 64).apply("round") * (1 / 64)
    square = (short * short).apply("exp") * ((x - short) * (x + short)).apply("exp")
    negative = where(x < ERFCX_IS_INFINITE, inf, 2 * square - positive)
    return where(x < 0, negative, positive)


def _inverse(x: Term, w: Term) -> Term:
    """Return the inverse of erf at x, where w is -log(1 - x^2)."""
    root = w.apply("sqrt")
    near = rows.ERFINV_NEAR.at(w)
    tail = rows.ERFINV_TAIL.at(2.5 / root) * root
    far = rows.ERFINV_FAR.at(5 / root) * root
    value = where(w <= 6.25, near, where(root <= 5, tail, far))
    return x * where(w.equals(inf), inf, value)


def erfinv(x: Term) -> Term:
    """Return the inverse of erf. Infinite at 1 and -1, NaN beyond."""
    return _inverse(x, -((1 - x) * (1 + x)).apply("log"))


def ndtri(x: Term) -> Term:
    """Return the inverse of the normal distribution function."""
    return _inverse(2 * x - 1, -(4 * x * (1 - x)).apply("log")) * sqrt(2)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.special_erfcx.default: formula(erfcx),
    aten.erfinv.default: formula(erfinv),
    aten.special_ndtri.default: formula(ndtri),
}
