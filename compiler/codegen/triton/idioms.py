"""Expressions that a GPU computes faster together than one by one: made before they are written."""

from __future__ import annotations

from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.expr import Call, Constant, Expr, rewrite


def with_idioms(kernel: FlatKernel) -> FlatKernel:
    """The kernel with operations of `library` in place of what they compute."""
    nodes = tuple(replace(n, body=rewrite(n.body, _one_plus_erf)) for n in kernel.nodes)
    return replace(kernel, nodes=nodes)


def _one_plus_erf(expr: Expr) -> Expr:
    """erf(x) + 1, as GELU has it: without the digits that 1 swallows it is half the work."""
    if not (isinstance(expr, Call) and expr.name == "add" and expr.dtype == torch.float32):
        return expr
    for function, one in (expr.args, expr.args[::-1]):
        erf = isinstance(function, Call) and function.name == "erf"
        if erf and isinstance(one, Constant) and one.value == 1:
            return Call(expr.dtype, "one_plus_erf", function.operands)
    return expr
