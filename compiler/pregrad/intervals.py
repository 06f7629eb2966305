"""Interval analysis: bounds of the elements of tensors that are made only from constants.

Sizes may be symbolic: no tensor is computed, and no size is compared. Bounds that a dtype would
round are dropped, so that every bound holds for eager's results.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.pregrad.node_values import example

Number = int | float

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

LONGEST = 1 << 48
"""An upper bound of symbolic sizes: more elements than any memory holds."""


@dataclass(frozen=True)
class Interval:
    """All elements are from `low` to `high`, and none is NaN. Bools count as 0 and 1."""

    low: Number
    high: Number


Known = Mapping[fx.Node, Interval]
Rule = Callable[[fx.Node, Known], Interval | None]


def intervals(graph: fx.Graph) -> dict[fx.Node, Interval]:
    """Return the intervals of nodes that depend on no input, as far as the rules can tell.

    Later writes to a tensor are not considered.
    """
    known: dict[fx.Node, Interval] = {}
    for node in graph.nodes:
        if not node.op.startswith("call_") or "out" in node.kwargs:
            continue
        value = node.meta.get("example_value")
        # a plain tensor belongs to a finished level of vmap or torch.func.grad
        if not isinstance(value, torch.Tensor) or type(value) is torch.Tensor:
            continue
        rule = RULES.get(node.target)
        found = rule(node, known) if rule else None
        if found and _holds(value.dtype, found.low) and _holds(value.dtype, found.high):
            known[node] = found
    return known


def is_view(node: fx.Node) -> bool:
    """Return whether a node that has an interval may share memory with its first argument."""
    return RULES.get(node.target) in (_same, _cast)


def _holds(dtype: torch.dtype, number: Number) -> bool:
    """Return whether a dtype represents this number exactly."""
    if dtype == torch.bool:
        return number in (0, 1)
    if dtype in INTEGERS:
        return isinstance(number, int) and _within(torch.iinfo(dtype), number)
    if dtype not in FLOATS or not _within(torch.finfo(dtype), number):
        return False
    info = torch.finfo(dtype)
    digits = math.frexp(number)[0] * 2 / info.eps
    normal = number == 0 or abs(number) >= info.tiny
    return normal and digits.is_integer() and float(number) == number


def _within(info: torch.iinfo | torch.finfo, number: Number) -> bool:
    return bool(info.min <= number <= info.max)


def _converted(source: Interval, dtype: torch.dtype) -> Interval | None:
    """The interval after a conversion, wider if that rounds; None if it does not fit the dtype."""
    if dtype == torch.bool:
        return _truth(source)
    if dtype in INTEGERS:
        whole = Interval(int(source.low), int(source.high))
        return whole if _holds(dtype, whole.low) and _holds(dtype, whole.high) else None
    if dtype not in FLOATS:
        return None
    info = torch.finfo(dtype)
    if any(not _within(info, n) or 0 < abs(n) < info.tiny for n in (source.low, source.high)):
        return None
    spread = [0 if _holds(dtype, n) else abs(n) * info.eps for n in (source.low, source.high)]
    return Interval(source.low - spread[0], source.high + spread[1])


def _truth(source: Interval) -> Interval:
    """Return the interval of `x != 0`."""
    if source.low == source.high == 0:
        return Interval(0, 0)
    return Interval(int(source.low > 0 or source.high < 0), 1)


def _bounds(argument: Any, known: Known) -> Interval | None:
    """Return the interval of an argument: a tensor or a number. None for symbolic numbers."""
    if isinstance(argument, fx.Node):
        return known.get(argument)
    if isinstance(argument, int | float) and math.isfinite(argument):
        number = int(argument) if isinstance(argument, bool) else argument
        return Interval(number, number)
    return None


def _operands(node: fx.Node, known: Known) -> tuple[Interval, Interval] | None:
    """Return the intervals of both operands in their promoted dtype."""
    if len(node.args) != 2 or node.kwargs:
        return None
    bounds = [_bounds(argument, known) for argument in node.args]
    if bounds[0] is None or bounds[1] is None:
        return None
    common = torch.result_type(*(example(argument) for argument in node.args))
    a, b = _converted(bounds[0], common), _converted(bounds[1], common)
    return None if a is None or b is None else (a, b)


def _of_two(combined: Callable[[Interval, Interval], Interval]) -> Rule:
    """Return the rule of an operator of two operands."""

    def rule(node: fx.Node, known: Known) -> Interval | None:
        operands = _operands(node, known)
        return combined(*operands) if operands else None

    return rule


def _at_corners(compute: Callable[[Number, Number], Number]) -> Rule:
    """Return the rule of an operator whose extremes are at the extremes of its operands."""

    def combined(a: Interval, b: Interval) -> Interval:
        corners = [compute(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return Interval(min(corners), max(corners))

    return _of_two(combined)


def _ordered(holds: Callable[[Number, Number], bool]) -> Rule:
    """Return the rule of > and >=: [whether it always holds, whether it may hold]."""
    return _of_two(lambda a, b: Interval(int(holds(a.low, b.high)), int(holds(a.high, b.low))))


def _flipped(holds: Callable[[Number, Number], bool]) -> Rule:
    """Return the rule of < and <=, given > and >=."""
    return _of_two(lambda a, b: Interval(int(holds(b.low, a.high)), int(holds(b.high, a.low))))


def _equal(a: Interval, b: Interval) -> Interval:
    always = a.low == a.high == b.low == b.high
    return Interval(int(always), int(a.low <= b.high and b.low <= a.high))


def _unequal(a: Interval, b: Interval) -> Interval:
    equal = _equal(a, b)
    return Interval(1 - equal.high, 1 - equal.low)


def _bools(compute: Callable[[int, int], int]) -> Rule:
    """Return the rule of `and` and `or` of bools. Bitwise operators of integers have no rule."""

    def rule(node: fx.Node, known: Known) -> Interval | None:
        operands = _operands(node, known)
        if operands is None or example(node).dtype != torch.bool:
            return None
        a, b = map(_truth, operands)
        return Interval(compute(int(a.low), int(b.low)), compute(int(a.high), int(b.high)))

    return rule


def _first(node: fx.Node, known: Known) -> Interval | None:
    return _bounds(node.args[0], known) if node.args else None


def _same(node: fx.Node, known: Known) -> Interval | None:
    """The rule of an operator that selects, repeats or moves elements of its first argument."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or source not in known:
        return None
    # view(dtype) reinterprets the bytes
    return known[source] if example(source).dtype == example(node).dtype else None


def _cast(node: fx.Node, known: Known) -> Interval | None:
    source = _first(node, known)
    return _converted(source, example(node).dtype) if source else None


def _not(node: fx.Node, known: Known) -> Interval | None:
    source = _first(node, known)
    if source is None or example(node).dtype != torch.bool:
        return None
    truth = _truth(source)
    return Interval(1 - truth.high, 1 - truth.low)


def _absolute(node: fx.Node, known: Known) -> Interval | None:
    source = _first(node, known)
    if source is None:
        return None
    ends = (abs(source.low), abs(source.high))
    return Interval(0 if source.low <= 0 <= source.high else min(ends), max(ends))


def _filled_with(number: int) -> Rule:
    return lambda node, known: Interval(number, number)


def _filled_with_argument(place: int) -> Rule:
    """Return the rule of an operator that fills its result with the argument at a position."""

    def rule(node: fx.Node, known: Known) -> Interval | None:
        given = node.args[place] if len(node.args) > place else node.kwargs.get("fill_value")
        return None if isinstance(given, fx.Node) else _bounds(given, known)

    return rule


def _arange(node: fx.Node, known: Known) -> Interval | None:
    """Return the rule of an ascending arange of integers with a known start.

    The end may be symbolic.
    """
    if {"start", "end", "step"} & set(node.kwargs) or not 0 < len(node.args) < 4:
        return None
    start, end, step = (0, *node.args, 1) if len(node.args) == 1 else (*node.args, 1)[:3]
    if type(start) is not int or type(step) is not int or step < 1:
        return None
    if isinstance(example(end), torch.SymInt):
        return Interval(start, start + step * LONGEST)
    return Interval(start, max(start, end - 1)) if type(end) is int else None


def _chosen(node: fx.Node, known: Known) -> Interval | None:
    """Return the rule of where(condition, a, b)."""
    if len(node.args) != 3 or node.kwargs:
        return None
    return _either(node, known, *node.args)


def _masked_fill(node: fx.Node, known: Known) -> Interval | None:
    """Return the rule of x.masked_fill(mask, value)."""
    if len(node.args) != 3 or node.kwargs:
        return None
    source, mask, value = node.args
    return _either(node, known, mask, value, source)


def _either(node: fx.Node, known: Known, condition: Any, yes: Any, no: Any) -> Interval | None:
    """Return the interval of one of two values, or of both if the condition may vary."""
    bounds = _bounds(condition, known)
    truth = _truth(bounds) if bounds else Interval(0, 1)
    taken = [yes] * (truth.high == 1) + [no] * (truth.low == 0)
    found = []
    for argument in taken:
        bounds = _bounds(argument, known)
        converted = _converted(bounds, example(node).dtype) if bounds else None
        if converted is None:
            return None
        found.append(converted)
    return Interval(min(f.low for f in found), max(f.high for f in found))


VIEWS = (
    "contiguous", "detach", "expand", "expand_as", "flatten", "getitem", "permute", "reshape",
    "squeeze", "transpose", "unsqueeze", "view",
)  # fmt: skip
CASTS = ("to", "type_as", "bool", "int", "long", "half", "bfloat16", "float", "double")

RULES: dict[Any, Rule] = {
    target: rule
    for rule, names in (
        (_filled_with(0), ("zeros", "zeros_like", "new_zeros")),
        (_filled_with(1), ("ones", "ones_like", "new_ones")),
        (_filled_with_argument(0), ("tensor",)),
        (_filled_with_argument(1), ("full", "full_like")),
        (_filled_with_argument(2), ("new_full",)),
        (_arange, ("arange",)),
        (_same, (*VIEWS, "clone", "repeat")),
        (_cast, CASTS),
        (_at_corners(operator.add), ("add",)),
        (_at_corners(operator.sub), ("sub",)),
        (_at_corners(operator.mul), ("mul",)),
        (_absolute, ("abs", "__abs__")),  # torch 2.11 calls the method
        (_ordered(operator.ge), ("ge",)),
        (_ordered(operator.gt), ("gt",)),
        (_flipped(operator.ge), ("le",)),
        (_flipped(operator.gt), ("lt",)),
        (_of_two(_equal), ("eq",)),
        (_of_two(_unequal), ("ne",)),
        (_bools(min), ("and_", "bitwise_and", "logical_and")),
        (_bools(max), ("or_", "bitwise_or", "logical_or")),
        (_not, ("invert", "bitwise_not", "logical_not")),
        (_chosen, ("where",)),
        (_masked_fill, ("masked_fill",)),
    )
    for name in names
    for target in (name, *(getattr(m, name, None) for m in (torch, operator, builtins)))
    if target is not None
}
"""Target of a call, a method name or a function -> its rule."""
