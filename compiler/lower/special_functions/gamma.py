"""Lowerings of the derivatives of the logarithm of the gamma function.

They use the recurrence (DLMF 5.5.2) up to the range of the asymptotic series (5.11.2 and its
derivative), and reflection (5.5.4) below 0. The coefficients are from Bernoulli numbers.
"""

from __future__ import annotations

from math import factorial, inf, nan, pi

import torch

from tcdebug.compiler.ir.build import call
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import Tensor
from tcdebug.compiler.lower.special_functions.formula import Term, formula, polynomial, where

aten = torch.ops.aten

STEPS = 10
"""The shift of a small argument before the asymptotic series is used."""
BERNOULLI = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
"""B(14), B(12), ... B(2)."""


def _shifted(x: Term) -> Term:
    return where(x < STEPS, x + STEPS, x)


def _positive_digamma(x: Term) -> Term:
    """digamma for x > 0. The sum of all 1 / (x + k) is p' / p, with p the product of all x + k."""
    product, slope = x, x * 0.0 + 1.0
    for step in range(1, STEPS):
        product, slope = product * (x + step), slope * (x + step) + product
    y = _shifted(x)
    inverse = 1 / (y * y)
    scaled = [b / (2 * k) for b, k in zip(BERNOULLI, range(7, 0, -1), strict=True)]
    value = y.apply("log") - 0.5 / y - inverse * polynomial(inverse, scaled)
    return where(x < STEPS, value - slope / product, value)


def digamma(x: Term) -> Term:
    """Return the derivative of log(gamma(x)). NaN at negative integers, infinite at 0."""
    whole = x.apply("trunc")
    value = _positive_digamma(where(x < 0, 1 - x, x))
    reflected = value - pi / ((x - x.apply("round")) * pi).apply("tan")
    below = where(whole.equals(x), nan, reflected)
    at_zero = Term(call("copysign", x.of(inf), (-x).expr))
    positive = where(x.equals(inf), inf, value)
    return where(x.equals(0), at_zero, where(x < 0, below, positive))


def _positive_trigamma(x: Term) -> Term:
    """trigamma for x >= 0.5. The sum of all 1 / (x + k)^2 is one quotient of positive numbers."""
    product, total = x * x, x * 0.0 + 1.0
    for step in range(1, STEPS):
        square = (x + step) * (x + step)
        product, total = product * square, total * square + product
    y = _shifted(x)
    inverse = 1 / y
    z = inverse * inverse
    tail = inverse + 0.5 * z + inverse * z * polynomial(z, BERNOULLI)
    return where(x < STEPS, total / product + tail, tail)


def trigamma(x: Term) -> Term:
    """Return the second derivative of log(gamma(x))."""
    # sin(pi x) from the distance of x to an integer; at an integer, as in eager, from rounded pi x
    away = x - x.apply("round")
    sine = (where(away.equals(0), x, away) * pi).apply("sin") / pi
    value = _positive_trigamma(where(x < 0.5, 1 - x, x))
    return where(x < 0.5, 1 / (sine * sine) - value, value)


def polygamma(site: Site, order: int, x: Tensor) -> Tensor:
    """Return the derivatives of digamma. From the second on, they use Hurwitz's zeta function."""
    if order < 2:
        result: Tensor = formula(trigamma if order else digamma)(site, x)
        return result
    scale = (-1.0) ** (order + 1) * factorial(order)

    def derivative(value: Term) -> Term:
        return scale * Term(call("zeta", value.of(order + 1.0), value.expr))

    higher: Tensor = formula(derivative)(site, x)
    return higher


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.digamma.default: formula(digamma),
    aten.polygamma.default: polygamma,
}
