"""Replaces combinations of operations by faster functions of `library`."""

from __future__ import annotations

from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.codegen.kernels.half_values import EXTREMES, NARROW
from tcdebug.compiler.ir.expr import Call, Constant, Expr, rewrite
from tcdebug.compiler.ir.representable import ROUND, Representable


def with_idioms(kernel: FlatKernel) -> FlatKernel:
    """Return the kernel with combinations of operations replaced by functions of `library`."""
    idioms = _Idioms(kernel)
    return replace(kernel, nodes=tuple(map(idioms.replaced, kernel.nodes)))


class _Idioms:
    """The replacements in one kernel, and its values that are numbers of bfloat16."""

    def __init__(self, kernel: FlatKernel) -> None:
        self._fits = Representable(torch.bfloat16)
        self._fits.values |= {n.name for n in kernel.nodes if n.dtype == torch.bfloat16}

    def replaced(self, node: FlatNode) -> FlatNode:
        """Return a node with its combinations replaced. Nodes come in order."""
        if node.kind in ("", *EXTREMES) and self._fits.holds(node.body):
            self._fits.values.add(node.name)
        return replace(node, body=rewrite(node.body, self._change))

    def _change(self, expr: Expr) -> Expr:
        match expr:
            case Call(name="add", dtype=torch.float32):
                return _one_plus_erf(expr)
            case Call(args=(Call(name="div", dtype=torch.float32) as quotient,)):
                rounds = expr.name == ROUND[torch.bfloat16] or (
                    expr.name in ("cast", NARROW) and expr.dtype == torch.bfloat16
                )
                return self._bfloat16_quotient(expr, quotient) if rounds else expr
        return expr

    def _bfloat16_quotient(self, rounded: Call, quotient: Call) -> Call:
        """Replace the division of two numbers of bfloat16 that is rounded to one.

        The quotient is at least 2^-17 of its size away from the middle of two numbers of the type.
        A division with an error of 2^-22 therefore rounds alike, which was seen for all pairs.
        """
        if not all(map(self._fits.holds, quotient.args)):
            return rounded
        return replace(rounded, args=(replace(quotient, name="bfloat16_quotient"),))


def _one_plus_erf(total: Call) -> Call:
    """Replace erf(x) + 1, as in GELU. Digits that rounding the sum drops need not be computed."""
    for function, one in (total.args, total.args[::-1]):
        erf = isinstance(function, Call) and function.name == "erf"
        if erf and isinstance(one, Constant) and one.value == 1:
            return Call(total.dtype, "one_plus_erf", function.operands)
    return total
