"""Positions of sorted elements, among which those of equal elements may be in any order."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, flatten
from tcdebug.minifier.reduction.operators.surgery import editable, name_of, set_outputs

DIM: Mapping[str, int] = MappingProxyType({"sort": 1, "argsort": 1, "topk": 2})
"""Operator that returns positions of sorted elements -> the place of `dim` among its arguments."""
LAST = -1
"""The dimension that these operators sort by default."""


def compared_by_elements(case: Case) -> Case | None:
    """Return a case that returns elements where `case` returns positions of unstable sorts.

    It also returns how often a position occurs, since a position that occurs twice is wrong.
    None if `case` returns no such positions.
    """
    graph, _ = editable(case)
    returned = [
        part for value in flatten(graph.output_node().args[0]) for part in _in_parts(graph, value)
    ]
    outputs, occurrences = [], []
    for value in returned:
        found = _sorted(value)
        if found is None:
            outputs.append(value)
            continue
        elements, dim = found
        with graph.inserting_before(value.next):
            outputs.append(graph.call_function(torch.gather, (elements, dim, value)))
            one = graph.call_function(torch.ones_like, (value,))
            none = graph.call_function(torch.zeros_like, (elements,), {"dtype": torch.int64})
            counts = graph.call_function(torch.scatter_add, (none, dim, value, one))
            occurrences.append(graph.call_function(torch.amax, (counts, dim)))
    if not occurrences:
        return None
    set_outputs(graph, [*outputs, *occurrences])
    return case.with_graph(graph)


def _in_parts(graph: fx.Graph, returned: Any) -> list[Any]:
    """Return the values and the positions of a sort that a graph returns as a whole."""
    if not isinstance(returned, fx.Node) or _name(returned) not in ("sort", "topk"):
        return [returned]
    with graph.inserting_before(returned.next):
        positions = graph.call_function(operator.getitem, (returned, 1))
        return [graph.call_function(operator.getitem, (returned, 0)), positions]


def _sorted(node: Any) -> tuple[Any, Any] | None:
    """Return the elements and the dimension whose sorted positions a node is; None for others."""
    if not isinstance(node, fx.Node):
        return None
    sort = node
    if node.target is operator.getitem and node.args[1] == 1:
        sort = node.all_input_nodes[0]
    name = _name(sort)
    if name not in DIM or (sort is node) is not (name == "argsort") or sort.kwargs.get("stable"):
        return None
    arguments = list(sort.args)
    elements = arguments[0] if arguments else sort.kwargs.get("input", sort.kwargs.get("self"))
    place = DIM[name]
    default = arguments[place] if len(arguments) > place else LAST
    return elements, sort.kwargs.get("dim", default)


def _name(node: fx.Node) -> str:
    return name_of(node).partition(".")[0]
