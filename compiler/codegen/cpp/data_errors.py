"""Finds the expressions that may meet an error in the data: a bad index or a zero divisor."""

from __future__ import annotations

from collections.abc import Iterable

from tcdebug.compiler.codegen.cpp.emitters.text import CHECKED
from tcdebug.compiler.codegen.kernels.flatten import FlatNode
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.expr import Call, Constant, Expr, Indirect, indices, loads, walk
from tcdebug.compiler.ir.operations import INTEGERS


def may_report(expr: Expr, last: Axis | None) -> bool:
    """Whether evaluating an expression along an axis may find a bad index or a zero divisor."""
    return may_divide_by_zero(expr) or any(
        isinstance(atom, Indirect) and atom.checked and _follows(atom.expr, last)
        for index in indices(expr)
        for atom in index.atoms
    )


def may_divide(nodes: Iterable[FlatNode]) -> bool:
    """Return whether nodes may meet a zero divisor."""
    return any(may_divide_by_zero(expr) for node in nodes for expr in walk(node.body))


def may_divide_by_zero(expr: Expr) -> bool:
    """Whether an operation divides integers by a value that is not known to be other than zero."""
    if not (isinstance(expr, Call) and expr.name in CHECKED and expr.dtype in INTEGERS):
        return False
    divisor = expr.args[1]
    return not (isinstance(divisor, Constant) and divisor.value)


def _follows(expr: Expr, last: Axis | None) -> bool:
    """Return whether an expression may vary along an axis. Values of the kernel itself may."""
    return last in expr.axes or any(not load.index for load in loads(expr))
