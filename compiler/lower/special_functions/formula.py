"""Formulas on real numbers, written with Python's operators.

A `Term` is an expression in float32 or float64. Python numbers are constants of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.build import call, cast, compute_dtype, constant
from tcdebug.compiler.ir.expr import Expr
from tcdebug.compiler.ir.operations import FLOATS
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor


@dataclass(frozen=True)
class Term:
    """A real number, or the truth value of a comparison."""

    expr: Expr

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which the formula is computed."""
        return self.expr.dtype

    def of(self, value: Term | float) -> Expr:
        """Return an operand as an expression of the same dtype."""
        return value.expr if isinstance(value, Term) else constant(self.dtype, value)

    def _with(self, name: str, other: Term | float) -> Term:
        return Term(call(name, self.expr, self.of(other)))

    def _after(self, name: str, other: Term | float) -> Term:
        return Term(call(name, self.of(other), self.expr))

    def __add__(self, other: Term | float) -> Term:
        return self._with("add", other)

    def __radd__(self, other: float) -> Term:
        return self._after("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self._after("sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Term:
        return self._after("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self._after("div", other)

    def __neg__(self) -> Term:
        return Term(call("neg", self.expr))

    def __lt__(self, other: Term | float) -> Term:
        return self._with("lt", other)

    def __le__(self, other: Term | float) -> Term:
        return self._with("le", other)

    def __gt__(self, other: Term | float) -> Term:
        return self._with("gt", other)

    def __and__(self, other: Term) -> Term:
        return self._with("bitwise_and", other)

    def equals(self, other: Term | float) -> Term:
        """Return whether two numbers are equal."""
        return self._with("eq", other)

    def apply(self, name: str) -> Term:
        """Return an operation of the IR applied to this term."""
        return Term(call(name, self.expr))


def where(condition: Term, x: Term | float, y: Term | float) -> Term:
    """x where the condition holds, else y. At least one of the two must be a Term."""
    known = x if isinstance(x, Term) else y
    assert isinstance(known, Term)
    return Term(call("where", condition.expr, known.of(x), known.of(y)))


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Return the value of a polynomial. The coefficient of the highest power comes first."""
    total = x * 0.0 + coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def formula(function: Callable[..., Term]) -> Lowering:
    """Return a lowering that applies a formula to its operands element by element."""

    def lower(site: Site, *operands: Operand) -> Tensor:
        result, compute = site.dtype, compute_dtype(site.dtype)
        if compute not in FLOATS:
            raise NotLowered(f"kernels do not compute in {result}")
        elements = [site.operand(o, compute) for o in operands]
        return site.tensor(lambda p: cast(function(*(Term(e(p)) for e in elements)).expr, result))

    return lower
