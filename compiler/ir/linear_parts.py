"""Finds the parts of an axis on which an integer is a linear function of the position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.arithmetic.index import ONE, Atom, Axis, Index, to_index
from tcdebug.compiler.ir.expr import Call, Constant, Expr, IndexValue, indirect_atoms

MANY = 8
"""The most parts that are counted."""
SHORTEST = 64
"""The fewest points that parts without a condition have on average. g++ vectorizes a condition with
masks, which costs less than several short loops."""


VECTOR, LONG = 16, 512
"""The points of a vector, and from how many points on those after the last vector do not matter."""


@dataclass(frozen=True)
class Linear:
    """slope * axis + start. A bool is 0 or 1."""

    slope: int
    start: int

    def at(self, point: int) -> int:
        """Return the value at a point of the axis."""
        return self.slope * point + self.start


class Changes(Exception):
    """An expression is not one linear function in a range, which is to be split before `point`."""

    def __init__(self, point: int) -> None:
        self.point = point


def truth(holds: Callable[[int], bool], low: int, high: int) -> bool:
    """Return whether a condition holds in a range in which it changes at most once.

    Raises Changes if it does.
    """
    first = holds(low)
    if holds(high - 1) == first:
        return first
    same, different = low, high - 1
    while different - same > 1:
        middle = (same + different) // 2
        same, different = (middle, different) if holds(middle) == first else (same, middle)
    raise Changes(different)


COMPARISONS: dict[str, Callable[[int], bool]] = {
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
}
"""What each comparison says of the difference of its operands."""


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """Return the conditions that must all hold for a condition to hold."""
    if isinstance(condition, Call) and condition.name == "bitwise_and":
        return tuple(part for arg in condition.args for part in conjuncts(arg))
    return (condition,)


def known_truth(condition: Expr) -> bool | None:
    """Return the value of a condition on constants; None if anything else decides it."""
    if condition.axes:
        return None
    found = linear(condition, Axis("point", ONE), 0, 1)
    return None if found is None else bool(found.start)


def fills_vectors(length: int) -> bool:
    """Return whether a loop computes few functions one by one, after its last whole vector."""
    return length % VECTOR == 0 or length >= LONG


def linear_parts(expr: Expr, axis: Axis) -> int | None:
    """Return the number of parts of an axis on each of which an integer is linear.

    None if there are more than MANY, or if it is not linear.
    """
    found = ranges(expr, axis)
    return None if found is None else len(found)


def ranges(expr: Expr, axis: Axis) -> list[tuple[int, int, Linear]] | None:
    """Return the parts of an axis, from a point to before another one, and the integer on each.

    None if there are more than MANY, or if it is not linear.
    """
    size = axis.size.constant
    if size is None:
        return None
    left, parts = [(0, size)], list[tuple[int, int, Linear]]()
    while left and len(parts) + len(left) <= MANY:
        low, high = left.pop()
        try:
            value = linear(expr, axis, low, high)
        except Changes as at:
            left += [(at.point, high), (low, at.point)]
            continue
        if value is None:
            return None
        parts.append((low, high, value))
    return None if left else parts


def linear(expr: Expr, axis: Axis, low: int, high: int) -> Linear | None:
    """Return an int64 or bool in a range of an axis; None if it may depend on anything else.

    Raises Changes if it is linear only in parts of the range.
    """
    known: dict[int, Linear | None] = {}
    """Id of a subexpression -> its value. A search uses each of its steps in several places."""

    def value(expr: Expr) -> Linear | None:
        if id(expr) not in known:
            known[id(expr)] = computed(expr)
        return known[id(expr)]

    def computed(expr: Expr) -> Linear | None:
        if expr.dtype not in (torch.int64, torch.bool):
            return None
        match expr:
            case Constant():
                return Linear(0, int(expr.value))
            case IndexValue():
                return _of_index(expr.index, axis) or through(expr.index)
            case Call():
                operands: list[Linear] = []
                for argument in expr.args:
                    operand = value(argument)
                    if operand is None:
                        return None
                    operands.append(operand)
                return _applied(expr, operands, low, high)
        return None

    def through(index: Index) -> Linear | None:
        """An index that depends on others, each of which is linear."""
        places: dict[Atom, Index] = {}
        for atom in indirect_atoms(index):
            place = None if atom.checked else value(atom.expr)
            if place is None:
                return None
            places[atom] = to_index(axis) * place.slope + place.start
        return _of_index(index.substitute(places), axis) if places else None

    return value(expr)


def _of_index(index: Index, axis: Axis) -> Linear | None:
    slope = index.coefficient(axis)
    if slope is None or slope.constant is None:
        return None
    start = (index - to_index(axis) * slope).constant
    return None if start is None else Linear(slope.constant, start)


def _applied(expr: Call, of: list[Linear], low: int, high: int) -> Linear | None:
    """Return an operation on linear operands."""
    if expr.name in COMPARISONS:
        difference = Linear(of[0].slope - of[1].slope, of[0].start - of[1].start)
        compare = COMPARISONS[expr.name]
        return Linear(0, truth(lambda p: compare(difference.at(p)), low, high))
    match expr.name, of:
        case ("eq" | "ne") as name, [a, b] if a.slope == b.slope:
            return Linear(0, (a.start == b.start) == (name == "eq"))
        case "add", [a, b]:
            return Linear(a.slope + b.slope, a.start + b.start)
        case "sub", [a, b]:
            return Linear(a.slope - b.slope, a.start - b.start)
        case "neg", [a]:
            return Linear(-a.slope, -a.start)
        case "mul", [a, b] if not a.slope or not b.slope:
            fixed, other = (a, b) if not a.slope else (b, a)
            return Linear(other.slope * fixed.start, other.start * fixed.start)
        case ("remainder" | "trunc_mod") as name, [a, b] if not b.slope and b.start > 0:
            floor = name == "remainder"
            quotient = _quotient(a.at(low), b.start, floor=floor)
            truth(lambda p: _quotient(a.at(p), b.start, floor=floor) == quotient, low, high)
            return Linear(a.slope, a.start - quotient * b.start)
        case "abs", [a]:
            negative = truth(lambda p: a.at(p) < 0, low, high)
            return Linear(-a.slope, -a.start) if negative else a
        case ("minimum" | "maximum") as name, [a, b]:
            first = truth(lambda p: (a.at(p) <= b.at(p)) == (name == "minimum"), low, high)
            return a if first else b
        case "where", [condition, a, b] if not condition.slope:
            return a if condition.start else b
        case ("bitwise_and" | "bitwise_or") as name, [a, b] if expr.dtype == torch.bool:
            both = name == "bitwise_and"
            return Linear(0, (a.start and b.start) if both else (a.start or b.start))
        case "bitwise_not", [a] if expr.dtype == torch.bool:
            return Linear(0, 1 - a.start)
        case "cast", [a] if expr.dtype == torch.int64:
            return a
    return None


def _quotient(number: int, divisor: int, *, floor: bool) -> int:
    """Return a quotient by a positive number, rounded down or to zero."""
    return number // divisor if floor or number >= 0 else -(-number // divisor)
