"""codegen.branchless: computes both sides of a choice in vectors if one of them calls a function.

g++ turns a branch into masks, but the functions of a vector math library have no masks. A branch
that calls one would run one point after the other. Only the loads stay inside the guard, since
those of the other side may be out of bounds.

g++ also moves a function that only one side of a choice needs into a branch, such as a sine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from tcdebug.compiler.codegen.cpp.data_errors import may_divide_by_zero
from tcdebug.compiler.codegen.cpp.emitters.text import MASKED
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.build import constant
from tcdebug.compiler.ir.expr import (
    Call,
    Expr,
    Guarded,
    IndexValue,
    Load,
    indices,
    indirect_atoms,
    rewrite,
    walk,
)
from tcdebug.compiler.ir.operations import FLOATS

CALLED = frozenset(
    (
        "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erfc", "pow", "atan2", "hypot",
    )
)  # fmt: skip
"""Functions of the vector math library; those of float64 also have `exp` and `erf`."""


def has_branches(kernel: FlatKernel, axis: Axis) -> bool:
    """Return whether a choice that changes along an axis calls a function on one side."""
    found = (e for n in kernel.nodes for e in walk(n.body))
    return any(_is_branch(e, axis) or _moves(e) for e in found)


def without_branches(kernel: FlatKernel, axis: Axis) -> FlatKernel:
    """Return the kernel with such choices computed on both sides."""

    def change(node: Expr) -> Expr:
        if _moves(node):
            return Call(node.dtype, MASKED, node.operands)
        if not isinstance(node, Guarded) or not _is_branch(node, axis):
            return node
        body = rewrite(node.body, _guarding(node.condition, chosen=True))
        other = rewrite(node.other, _guarding(node.condition, chosen=False))
        return Call(node.dtype, "where", (node.condition, body, other))

    nodes = (replace(n, body=rewrite(n.body, change)) for n in kernel.nodes)
    return replace(kernel, nodes=tuple(nodes))


def _is_branch(node: Expr, axis: Axis) -> bool:
    if not isinstance(node, Guarded) or axis not in node.condition.axes:
        return False
    inside = [e for side in (node.body, node.other) for e in walk(side)]
    return any(map(_calls, inside)) and not any(map(may_divide_by_zero, inside))


def _moves(node: Expr) -> bool:
    """Return whether a node is a choice of floats one of which a function is called for."""
    if not isinstance(node, Call) or node.name != "where" or node.dtype not in FLOATS:
        return False
    return any(_calls(e) for side in node.args[1:] for e in walk(side))


def _calls(node: Expr) -> bool:
    if not isinstance(node, Call) or not node.dtype.is_floating_point:
        return False
    return node.name in CALLED or (node.dtype == torch.float64 and node.name in ("exp", "erf"))


def _guarding(condition: Expr, *, chosen: bool) -> Callable[[Expr], Expr]:
    """Guard what reads memory. `chosen` says on which side of the condition it is read."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Load | IndexValue) or not _reads_memory(node):
            return node
        unread = constant(node.dtype, 0)
        sides = (node, unread) if chosen else (unread, node)
        return Guarded(node.dtype, condition, *sides)

    return change


def _reads_memory(node: Load | IndexValue) -> bool:
    if isinstance(node, Load):
        return bool(node.index)
    return any(indirect_atoms(index) for index in indices(node))
