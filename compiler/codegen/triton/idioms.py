"""Replaces combinations of operations by faster functions of `library`."""

from __future__ import annotations

from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.expr import Call, Constant, Expr, rewrite


def with_idioms(kernel: FlatKernel) -> FlatKernel:
    """Return the kernel with combinations of operations replaced by functions of `library`."""
    nodes = tuple(replace(n, body=rewrite(n.body, _one_plus_erf)) for n in kernel.nodes)
    return replace(kernel, nodes=nodes)


def _one_plus_erf(expr: Expr) -> Expr:
    """Replace erf(x) + 1, as in GELU. Digits that rounding the sum drops need not be computed."""
    if not (isinstance(expr, Call) and expr.name == "add" and expr.dtype == torch.float32):
        return expr
    for function, one in (expr.args, expr.args[::-1]):
        erf = isinstance(function, Call) and function.name == "erf"
        if erf and isinstance(one, Constant) and one.value == 1:
            return Call(expr.dtype, "one_plus_erf", function.operands)
    return expr
