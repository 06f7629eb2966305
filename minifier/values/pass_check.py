"""Finds a pass that changed what a graph computes, by running the graph before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import clone_values, flatten
from tcdebug.minifier.judging.compare import Difference, difference
from tcdebug.minifier.values.findings import BITWISE, WrongStep
from tcdebug.minifier.values.observation import (
    MOST_LINES,
    Observation,
    ObservedPlace,
    compared,
    lines_of,
)
from tcdebug.minifier.values.reference import Computed, ReferenceGraph, SharedValues, Unjudged

UNCHECKED = "graphs before passes"


def check_passes(
    observation: Observation,
    place: ObservedPlace,
    before: fx.GraphModule,
    after: fx.GraphModule,
    args: Sequence[Any],
) -> None:
    """Compare the results of both graphs in eager, with the first one in float64 as reference.

    Graphs that draw random numbers, or that cannot be run, are counted as not compared.
    """
    if observation.oracle in (BITWISE, "nan"):
        return
    first, second = ReferenceGraph(before), ReferenceGraph(after)
    shared = SharedValues(), SharedValues()
    inputs = [n.name for n in before.graph.find_nodes(op="placeholder")]
    known = dict(zip(inputs, clone_values(args), strict=True))
    results = zip(_results(before), _results(after), strict=False)
    pairs = [(b, a) for b, a in results if b is not None and a is not None]
    updated = first.updated_inputs().keys() | second.updated_inputs().keys()
    for wanted, made in pairs:
        if wanted.op == "placeholder" or made.op == "placeholder":
            continue
        regions = (*first.region([wanted.name], known), *second.region([made.name], known))
        if updated & {n.name for r in regions for n in r.all_input_nodes}:
            continue  # it may be a view of an input, which the graph updates later
        try:
            found = _compare((first, second), wanted, made, known, shared)
        except Unjudged as reason:
            observation.unjudged[f"{UNCHECKED}: {reason}"[:200]] += 1
            return
        observation.values += 1
        if found is not None:
            value, reference, detail = found
            changed, nodes = _changed(first, second, wanted.name, made.name, known)
            finding = WrongStep(
                "passes", "the passes after AOTAutograd", place.graph, place.direction,
                place.call, 0, f"{made.name}: {detail.detail}",
                compared(made.name, wanted.name, value, reference, detail),
                nodes=changed, lines=lines_of(nodes),
            )  # fmt: skip
            observation.find(finding)
            return


def _results(module: fx.GraphModule) -> list[fx.Node | None]:
    found = flatten(module.graph.output_node().args[0])
    return [node if isinstance(node, fx.Node) else None for node in found]


def _compare(
    graphs: tuple[ReferenceGraph, ReferenceGraph],
    wanted: fx.Node,
    made: fx.Node,
    known: dict[str, Any],
    shared: tuple[SharedValues, SharedValues],
) -> tuple[torch.Tensor, Computed, Difference] | None:
    """Return a value after the passes, its reference and the difference; None if it is right."""
    first, second = graphs
    plain = first.value(wanted.name, known, shared[0])
    value = second.value(made.name, known, shared[1])
    if not isinstance(value, torch.Tensor) or not isinstance(plain, torch.Tensor):
        return None
    if torch.equal(value, plain):
        return None
    reference = first.compute(wanted.name, known, shared=shared[0])
    if reference.exact is None or reference.jumps:
        raise Unjudged("no float64 reference, or comparisons")
    detail = difference(reference.eager, value, reference.exact, wanted.name)
    return None if detail is None else (value, reference, detail)


def _changed(
    first: ReferenceGraph, second: ReferenceGraph, wanted: str, made: str, known: dict[str, Any]
) -> tuple[list[str], tuple[fx.Node, ...]]:
    """Return the nodes before and after the passes at the first node whose value differs.

    Nodes with the same name in both graphs are compared in order, each from the values of the
    nodes before it.
    """
    equal = dict(known)
    for node in second.region([made], known):
        before = first.nodes.get(node.name)
        if before is None or node.op != "call_function":
            continue
        try:
            old, new = first.compute(node.name, equal), second.compute(node.name, equal)
        except Unjudged:
            continue
        values = (old.eager, new.eager)
        tensors = all(isinstance(v, torch.Tensor) for v in values)
        if tensors and difference(old.eager, new.eager, old.exact, node.name) is not None:
            return _as_diff(old.nodes, new.nodes), old.nodes
        equal[node.name] = old.eager
    regions = tuple(first.region([wanted], equal)), tuple(second.region([made], equal))
    return _as_diff(*regions), regions[0]


def _as_diff(old: Sequence[fx.Node], new: Sequence[fx.Node]) -> list[str]:
    lost = [f"- {n.format_node()}" for n in old[-MOST_LINES:]]
    return [*lost, *(f"+ {n.format_node()}" for n in new[-MOST_LINES:])]
