"""codegen.half_values: keeps bfloat16 and float16 values of a kernel as floats.

Arithmetic is done in float, and rounded after each operator as in eager. A value is then a float
that is a number of the half type. It is converted to 16 bits only where it is stored: vectors of
16-bit and 32-bit elements differ in length, and each change from one to the other costs shuffles.
Where rounding changes nothing (`ir/representable.py`), it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from tcdebug.compiler.codegen.halves.late_rounding import rounded_late
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel, FlatNode
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.expr import Call, Expr, Guarded, Load, loads, rewrite, walk
from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.ir.representable import ROUND, ROUND_BITS, Representable, ShortNaN

NARROW = "narrow"
"""The conversion of a float that is a number of a half type to that type."""
EXTREMES = ("max", "min", "cummax", "cummin")


def has_half_values(kernel: FlatKernel) -> bool:
    """Return whether the kernel converts from or to a half type."""
    return any(
        isinstance(expr, Call) and expr.name == "cast" and _is_half(expr)
        for node in kernel.nodes
        for expr in walk(node.body)
    )


def with_half_values(kernel: FlatKernel) -> FlatKernel:
    """Return the kernel with half values as floats, and without roundings that change nothing."""
    kernel = rounded_late(kernel)
    widening = Widening(kernel.nodes)
    nodes = [replace(n, body=widening.body(n)) for n in kernel.nodes]
    needed, changed = set(kernel.stored), list[FlatNode]()
    for node in reversed(nodes):
        if node.dtype in HALVES and node.name not in needed and not node.kind:
            node = replace(node, dtype=torch.float32, body=widening.wide(node.body))
        needed |= {load.buffer for load in loads(node.body) if load.dtype in HALVES}
        changed.append(node)
    return replace(kernel, nodes=_rounding_bits(reversed(changed)))


def _rounding_bits(nodes: Iterable[FlatNode]) -> tuple[FlatNode, ...]:
    """Return nodes that round the bits of a float, where no NaN needs more. Nodes come in order."""
    short, done, changed = ShortNaN(), dict[str, Expr](), list[FlatNode]()

    def change(expr: Expr) -> Expr:
        if not isinstance(expr, Call) or expr.name not in ("cast", ROUND[torch.bfloat16]):
            return expr
        (value,) = expr.args
        if value.dtype != torch.float32 or not short.holds(value):
            return expr
        rounded = Call(torch.float32, ROUND_BITS, expr.args)
        if expr.dtype == torch.bfloat16:
            return Call(expr.dtype, NARROW, (rounded,))
        return expr if expr.name == "cast" else rounded

    for node in nodes:
        body = rewrite(node.body, change, done)
        if node.kind in ("", "sum", "prod", *EXTREMES) and short.holds(body):
            short.values.add(node.name)
        changed.append(replace(node, body=body))
    return tuple(changed)


def as_float(body: Expr) -> Expr:
    """Return the value of the body of a node of a half type as a float."""
    if isinstance(body, Call) and body.name == NARROW:
        return body.args[0]
    if isinstance(body, Call) and body.name == "cast":
        return Call(torch.float32, ROUND[body.dtype], (cast(body.args[0], torch.float32),))
    return cast(body, torch.float32)


def rounds(expr: Expr) -> bool:
    """Return whether an expression is a float that is rounded to a half type."""
    return isinstance(expr, Call) and expr.name in (*ROUND.values(), ROUND_BITS)


def _is_half(cast: Call) -> bool:
    return cast.dtype in HALVES or cast.args[0].dtype in HALVES


class Widening:
    """Rewrites the expressions of a kernel.

    A load of a value of the kernel in float32, where the value is of a half type, is that value as
    a float.
    """

    def __init__(self, nodes: Iterable[FlatNode]) -> None:
        self._fits = {half: Representable(half) for half in HALVES}
        self._wide: dict[str, Expr] = {}
        self._done: dict[str, Expr] = {}
        for node in nodes:
            if node.dtype in HALVES:
                self._fits[node.dtype].values.add(node.name)

    def body(self, node: FlatNode) -> Expr:
        """Return the body of a node, computed in float as far as possible. Nodes come in order."""
        body = rewrite(node.body, self._change, self._done)
        if body.dtype in HALVES:
            return self._narrow(body)
        for fits in self._fits.values():
            if (not node.kind or node.kind in EXTREMES) and fits.holds(body):
                fits.values.add(node.name)
        return body

    def _change(self, expr: Expr) -> Expr:
        if isinstance(expr, Call) and expr.name == "cast" and expr.args[0].dtype in HALVES:
            return cast(self.wide(expr.args[0]), expr.dtype)
        return expr

    def wide(self, value: Expr) -> Expr:
        """Return a value of a half type as a float."""
        if value.key not in self._wide:
            self._wide[value.key] = self._compute(value)
        return self._wide[value.key]

    def _compute(self, value: Expr) -> Expr:
        match value:
            case Load(index=()):
                return Load(torch.float32, value.buffer, ())
            case Guarded():
                sides = self.wide(value.body), self.wide(value.other)
                return Guarded(torch.float32, value.condition, *sides)
            case Call(name="where"):
                condition, *chosen = value.args
                return Call(torch.float32, "where", (condition, *map(self.wide, chosen)))
            case Call(name="cast"):
                return self._rounded(cast(value.args[0], torch.float32), value.dtype)
        return cast(value, torch.float32)

    def _rounded(self, value: Expr, half: torch.dtype) -> Expr:
        if self._fits[half].holds(value):
            return value
        rounded = Call(torch.float32, ROUND[half], (value,))
        self._fits[half].note(rounded)
        return rounded

    def _narrow(self, value: Expr) -> Expr:
        """Return a value that is stored. Elements that are only moved are not converted."""
        if isinstance(value, Call) and value.name == "cast":
            wide = cast(value.args[0], torch.float32)
            if (moved := _moved(wide, value.dtype)) is not None:
                return moved
            exact = self._fits[value.dtype].holds(wide)
            return Call(value.dtype, NARROW, (wide,)) if exact else value
        if isinstance(value, Load) or not any(_computes(e) for e in walk(value)):
            return value
        return Call(value.dtype, NARROW, (self.wide(value),))


def _moved(wide: Expr, half: torch.dtype) -> Expr | None:
    """Return a float as the element of a half type that it was converted from, or chosen among."""
    match wide:
        case Call(name="cast", args=(value,)) if value.dtype == half:
            return value
        case Guarded():
            body, other = _moved(wide.body, half), _moved(wide.other, half)
            if body is not None and other is not None:
                return Guarded(half, wide.condition, body, other)
        case Call(name="where", args=(condition, first, second)):
            chosen, other = _moved(first, half), _moved(second, half)
            if chosen is not None and other is not None:
                return Call(half, "where", (condition, chosen, other))
    return None


def _computes(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name == "cast" and expr.dtype in HALVES
