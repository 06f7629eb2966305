"""codegen.column_values: computes what depends on the column alone once, and not in each row.

If vector lanes run across rows, the innermost loop is that of the lanes, in the loop over a row. A
value that differs between lanes, but not along a row, would be computed at each point. It becomes a
node of its own, which is computed before the loop and has a value for each lane.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis
from tcdebug.compiler.ir.arithmetic.order import is_positive
from tcdebug.compiler.ir.cost import arithmetic
from tcdebug.compiler.ir.expr import Call, Constant, Expr, Indirect, Load, Parameter, loads, rewrite
from tcdebug.compiler.ir.operations import FLOATS, HALVES

WORTH = 2
"""The fewest operations for which reading a value from an array is faster."""


def with_column_values(kernel: FlatKernel, lane: Axis) -> FlatKernel | None:
    """Return the kernel with values of columns as nodes; None if there are none worth it."""
    if not all(is_positive(a.size) for a in kernel.inner):
        return None
    columns = _Columns(kernel, lane)
    nodes: list[FlatNode] = []
    for node in kernel.nodes:
        nodes += columns.changed(node) if node.inside else (node,)
    return replace(kernel, nodes=tuple(nodes)) if len(nodes) > len(kernel.nodes) else None


class _Columns:
    """Takes the values of columns out of the nodes of a kernel, which come in order."""

    def __init__(self, kernel: FlatKernel, lane: Axis) -> None:
        self._inner = frozenset(kernel.inner)
        self._lane = lane
        self._of_rows = {n.name for n in kernel.nodes if n.inside and not n.reduces}
        self._known: set[str] = set()
        self._done: dict[str, Expr] = {}
        self._new: dict[str, FlatNode] = {}
        self._user = kernel.nodes[0]

    def changed(self, node: FlatNode) -> tuple[FlatNode, ...]:
        """Return a node after the values of columns that it is the first to need."""
        before, self._user = len(self._new), node
        body = rewrite(node.body, self._change, self._done)
        return (*list(self._new.values())[before:], replace(node, body=body))

    def _change(self, expr: Expr) -> Expr:
        if self._is_of_column(expr):
            self._known.add(expr.key)
            return expr
        operands = tuple(map(self._taken_out, expr.operands))
        return expr.with_operands(operands) if operands else expr

    def _is_of_column(self, expr: Expr) -> bool:
        """Whether an expression has one value per column, and cannot fail."""
        match expr:
            case Constant() | Parameter():
                return True
            case Load(index=()):
                return expr.buffer not in self._of_rows
            case Load():
                indirect = any(isinstance(a, Indirect) for i in expr.index for a in i.atoms)
                return not indirect and not expr.axes & self._inner
            case Call():
                known = all(a.key in self._known for a in expr.args)
                return known and all(d in (*FLOATS, *HALVES) for d in (expr.dtype, *_dtypes(expr)))
        return False

    def _taken_out(self, expr: Expr) -> Expr:
        """Return the value of a node for an operand that is worth one."""
        if expr.key not in self._known or expr.dtype not in FLOATS or arithmetic(expr) < WORTH:
            return expr
        if self._lane not in expr.axes and all(load.index for load in loads(expr)):
            return expr  # one number for all lanes, which is computed outside of their loop anyway
        if expr.key not in self._new:
            name = f"value_of_column{len(self._new)}"  # equal kernels share code: no name in it
            node = FlatNode(name, expr.dtype, "", False, ZERO, expr, self._user.origin)
            self._new[expr.key] = node
        return Load(expr.dtype, self._new[expr.key].name, ())


def _dtypes(expr: Call) -> tuple[torch.dtype, ...]:
    return tuple(a.dtype for a in expr.args)
