"""Drop arguments that a call does not need, and replace literals by 0 or 1."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, flatten
from tcdebug.minifier.cases.operators.triton_launches import is_launch
from tcdebug.minifier.reduction.operators.regions import changes_state
from tcdebug.minifier.reduction.operators.surgery import editable, finish
from tcdebug.minifier.reduction.trial import Observed, observed, same_kind

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
PLAIN = (0, 1, -1)
"""The simplest numbers. True and False are among them."""


@dataclass(frozen=True)
class SimplifyArguments:
    """Simplify any subset of the arguments that do not determine the shape of the result."""

    name: str = "simplify_arguments"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the arguments, each as its call and its position or name."""
        known = observed(case)
        found: list[str] = []
        for node in case.calls:
            arguments: Arguments = node.args, dict(node.kwargs)
            for place in _places(node):
                simpler = _simpler(node, arguments, place, known)
                if simpler is not None:
                    arguments = simpler
                    found.append(_edit(node, place))
        return found

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph without these arguments or with simpler numbers."""
        known = observed(case)
        graph, named = editable(case)
        for node in case.calls:
            arguments: Arguments = node.args, dict(node.kwargs)
            for place in _places(node):
                if _edit(node, place) in edits:
                    arguments = _simpler(node, arguments, place, known) or arguments
            copy = named[node.name]
            copy.args, copy.kwargs = fx.node.map_arg(arguments, lambda n: named[n.name])
        return finish(case, graph)


def _edit(node: fx.Node, place: str) -> str:
    return f"{node.name} {place}"


def length(node: fx.Node) -> int:
    """Return the number of arguments of a call. Numbers that are not simple count twice."""
    leaves = flatten([node.args, dict(node.kwargs)])
    return len(leaves) + sum(1 for leaf in leaves if _is_special(leaf))


def _is_special(value: Any) -> bool:
    return isinstance(value, int | float) and value not in PLAIN


def _places(node: fx.Node) -> list[str]:
    """Return the arguments of a call except the first: names, then positions from the last on."""
    if changes_state(node) or node.target is operator.setitem or is_launch(node):
        return []
    return [*node.kwargs, *map(str, range(len(node.args) - 1, 0, -1))]


def _simpler(node: fx.Node, arguments: Arguments, place: str, known: Observed) -> Arguments | None:
    """Return simpler arguments with which the call gives a tensor of the same shape and dtype."""
    wanted = known.values.get(node.name)
    indexed = node.target is operator.getitem and not isinstance(
        known.values.get(node.all_input_nodes[0].name), torch.Tensor
    )
    if indexed:
        return None
    for args, kwargs in _options(*arguments, place, _dimensions(node, known)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a deprecated call is not simpler
            if same_kind(known.result(node.target, args, kwargs), wanted):
                return args, kwargs
    return None


def _dimensions(node: fx.Node, known: Observed) -> int:
    """Return the bound below which an integer argument may mean a dimension."""
    if getattr(node.target, "__module__", "") == operator.add.__module__:
        return 0
    ranks = (getattr(known.values.get(n.name), "ndim", 0) for n in node.all_input_nodes)
    return max(ranks, default=0)


def _options(
    args: tuple[Any, ...], kwargs: dict[str, Any], place: str, dimensions: int
) -> Iterator[Arguments]:
    """Yield the arguments without one of them, then with simpler values of it."""
    if place in kwargs:
        yield args, {k: v for k, v in kwargs.items() if k != place}
        for value in _values(kwargs[place], dimensions):
            yield args, {**kwargs, place: value}
        return
    position = int(place)
    if position == len(args) - 1:
        yield args[:position], kwargs
    for value in _values(args[position], dimensions):
        yield (*args[:position], value, *args[position + 1 :]), kwargs


def _values(value: Any, dimensions: int) -> Iterator[Any]:
    """Yield simpler values of the same type."""
    if isinstance(value, fx.Node):
        yield None
    elif isinstance(value, int) and -dimensions <= value < dimensions:
        return
    elif isinstance(value, tuple | list) and any(map(_is_special, value)):
        yield from (type(value)([plain] * len(value)) for plain in (1, 0))
    elif _is_special(value):
        yield from (type(value)(plain) for plain in (1, 0))
