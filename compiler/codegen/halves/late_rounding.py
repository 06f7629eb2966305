"""Rounds to a half type after a choice or an extreme, instead of each operand before it.

Rounding keeps the order of numbers and their signs. So the larger of two rounded numbers is the
larger number, rounded. `relu`, `clamp` and `where` of what is computed then convert once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, Load, rewrite
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.ir.representable import Representable

ORDERED = frozenset(("neg", "abs", "maximum", "minimum", "fmax", "fmin"))
"""Operations on floats whose result is one of their operands, but for its sign."""


def rounded_late(kernel: FlatKernel) -> FlatKernel:
    """Return the kernel with as few roundings as give the same results."""
    late = _Late()
    return replace(kernel, nodes=tuple(map(late.replaced, kernel.nodes)))


class _Late:
    """The replacements in one kernel, and its values that are numbers of half types."""

    def __init__(self) -> None:
        self._fits = {half: Representable(half) for half in HALVES}

    def replaced(self, node: FlatNode) -> FlatNode:
        """Return a node with its roundings replaced. Nodes come in order."""
        if node.dtype in HALVES:
            self._fits[node.dtype].values.add(node.name)
        return replace(node, body=rewrite(node.body, self._change))

    def _change(self, expr: Expr) -> Expr:
        half = expr.dtype
        if half not in HALVES or not isinstance(expr, Call | Guarded):
            return expr
        value = expr.args[0] if isinstance(expr, Call) and expr.name == "cast" else expr
        leaves = list(_leaves(value))
        rounded = {leaf.key for leaf in leaves if _unrounded(leaf, half) is not None}
        others = [leaf for leaf in leaves if leaf.key not in rounded]
        if value in leaves or not rounded or not all(self._fits[half].holds(o) for o in others):
            return expr
        if len(rounded) < 2 and any(map(_is_loaded, others)):
            return expr  # it would be converted to a float and back
        return cast(_without_roundings(value, half), half)


def _leaves(value: Expr) -> Iterator[Expr]:
    """Yield the values that a choice or an extreme has as its result."""
    match value:
        case Guarded():
            parts: tuple[Expr, ...] = (value.body, value.other)
        case Call(name="where"):
            parts = value.args[1:]
        case Call() if value.name in ORDERED:
            parts = value.args
        case _:
            yield value
            return
    for part in parts:
        yield from _leaves(part)


def _unrounded(leaf: Expr, half: torch.dtype) -> Expr | None:
    """Return the float that a leaf rounds to a half type; None if it rounds none."""
    if leaf.dtype == torch.float32 and isinstance(leaf, Call) and leaf.name == "cast":
        (leaf,) = leaf.args
    if leaf.dtype != half or not isinstance(leaf, Call) or leaf.name != "cast":
        return None
    (value,) = leaf.args
    return value if value.dtype == torch.float32 else None


def _is_loaded(leaf: Expr) -> bool:
    while isinstance(leaf, Call) and leaf.name == "cast":
        (leaf,) = leaf.args
    return isinstance(leaf, Load)


def _without_roundings(value: Expr, half: torch.dtype) -> Expr:
    """Return a choice or an extreme in float32, of operands that are not rounded."""
    match value:
        case Guarded():
            sides = (_without_roundings(side, half) for side in (value.body, value.other))
            return Guarded(torch.float32, value.condition, *sides)
        case Call(name="where"):
            condition, *chosen = value.args
            parts = tuple(_without_roundings(c, half) for c in chosen)
            return Call(torch.float32, "where", (condition, *parts))
        case Call() if value.name in ORDERED:
            parts = tuple(_without_roundings(a, half) for a in value.args)
            return Call(torch.float32, value.name, parts)
    unrounded = _unrounded(value, half)
    return cast(value, torch.float32) if unrounded is None else unrounded
