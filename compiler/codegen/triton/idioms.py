"""Replaces combinations of operations by faster functions of `library`."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from tcdebug.compiler.codegen.halves.half_values import EXTREMES
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.expr import Call, Constant, Expr, rewrite
from tcdebug.compiler.ir.representable import Representable

QUOTIENTS = {torch.bfloat16: "approximate_div", torch.float16: "float16_quotient"}
"""Half type -> the division of its numbers in float32, if the quotient is rounded to that type."""

LEAST = 2.0**-126
"""The least power of two that float32 holds with all digits, and whose reciprocal it holds too."""


def with_idioms(kernel: FlatKernel) -> FlatKernel:
    """Return the kernel with combinations of operations replaced by functions of `library`."""
    idioms = _Idioms(kernel)
    return replace(kernel, nodes=tuple(map(idioms.replaced, kernel.nodes)))


class _Idioms:
    """The replacements in one kernel, and its values that are numbers of half types."""

    def __init__(self, kernel: FlatKernel) -> None:
        self._fits = {half: Representable(half) for half in QUOTIENTS}
        for node in kernel.nodes:
            if node.dtype in QUOTIENTS:
                self._fits[node.dtype].values.add(node.name)

    def replaced(self, node: FlatNode) -> FlatNode:
        """Return a node with its combinations replaced. Nodes come in order."""
        for fits in self._fits.values():
            if node.kind in ("", *EXTREMES) and fits.holds(node.body):
                fits.values.add(node.name)
        return replace(node, body=rewrite(node.body, self._change))

    def _change(self, expr: Expr) -> Expr:
        match expr:
            case Call(name="div", args=(dividend, Constant(value=float() as divisor))):
                return _by_power_of_two(expr, dividend, divisor)
            case Call(name="add", dtype=torch.float32):
                return _one_plus_erf(expr)
            case Call(name="cast", args=(Call(name="div", dtype=torch.float32) as quotient,)):
                return self._quotient(expr, quotient) if expr.dtype in QUOTIENTS else expr
            case Call(name="cast", dtype=torch.bfloat16, args=(Call(name="log") as logarithm,)):
                return self._logarithm(expr, logarithm)
        return expr

    def _logarithm(self, rounded: Call, logarithm: Call) -> Call:
        """Replace the logarithm of a bfloat16 number that is rounded to bfloat16."""
        if not self._fits[torch.bfloat16].holds(logarithm.args[0]):
            return rounded
        return replace(rounded, args=(replace(logarithm, name="bfloat16_log"),))

    def _quotient(self, rounded: Call, quotient: Call) -> Call:
        """Replace the division of two numbers of a half type that is rounded to the type.

        No such quotient is close to the middle of two numbers of the type, so that a division with
        a small error rounds alike. This was seen for all pairs of both types.
        """
        if not all(map(self._fits[rounded.dtype].holds, quotient.args)):
            return rounded
        return replace(rounded, args=(replace(quotient, name=QUOTIENTS[rounded.dtype]),))


def _by_power_of_two(quotient: Call, dividend: Expr, divisor: float) -> Call:
    """Replace a division by a power of two, whose reciprocal is exact, by a multiplication."""
    if quotient.dtype not in (torch.float32, torch.float64) or not math.isfinite(divisor):
        return quotient
    if abs(math.frexp(divisor)[0]) != 0.5 or not LEAST <= abs(divisor) <= 1 / LEAST:
        return quotient
    factor = Constant(quotient.dtype, 1 / divisor)
    return Call(quotient.dtype, "mul", (dividend, factor))


def _one_plus_erf(total: Call) -> Call:
    """Replace erf(x) + 1, as in GELU. Digits that rounding the sum drops need not be computed."""
    for function, one in (total.args, total.args[::-1]):
        erf = isinstance(function, Call) and function.name == "erf"
        if erf and isinstance(one, Constant) and one.value == 1:
            return Call(total.dtype, "one_plus_erf", function.operands)
    return total
