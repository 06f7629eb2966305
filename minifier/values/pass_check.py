"""Finds a pass that changed what a graph computes, by running the graph before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import clone_values, flatten
from tcdebug.minifier.judging.compare import difference
from tcdebug.minifier.values.findings import WrongStep
from tcdebug.minifier.values.judgement import BITWISE
from tcdebug.minifier.values.observation import (
    MOST_LINES,
    Observation,
    ObservedPlace,
    compared,
    lines_of,
)
from tcdebug.minifier.values.reference import Computed, ReferenceGraph, Unjudged

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
            found = _compare(first, second, wanted, made, known)
        except Unjudged as reason:
            observation.unjudged[f"{UNCHECKED}: {reason}"[:200]] += 1
            return
        observation.values += 1
        if found is not None:
            computed, value, detail = found
            texts = [str(n.format_node()) for n in second.region([made.name], known)[-MOST_LINES:]]
            written = compared(made.name, wanted.name, value, computed, detail)
            finding = WrongStep(
                "passes", "the passes after AOTAutograd", place.graph, place.direction,
                place.call, 0, f"{made.name}: {detail.detail}", written, "", "", texts,
                lines_of(computed.nodes),
            )  # fmt: skip
            observation.find(finding)
            return


def _results(module: fx.GraphModule) -> list[fx.Node | None]:
    found = flatten(module.graph.output_node().args[0])
    return [node if isinstance(node, fx.Node) else None for node in found]


def _compare(
    first: ReferenceGraph,
    second: ReferenceGraph,
    wanted: fx.Node,
    made: fx.Node,
    known: dict[str, Any],
) -> Any:
    """Return the reference, the value after the passes and the difference; None if it is right."""
    reference = first.compute(wanted.name, known)
    value = second.compute(made.name, known).eager
    if not isinstance(value, torch.Tensor) or not isinstance(reference.eager, torch.Tensor):
        return None
    if torch.equal(value, reference.eager):
        return None
    if reference.exact is None or reference.jumps:
        raise Unjudged("no float64 reference, or comparisons")
    detail = difference(reference.eager, value, reference.exact, wanted.name)
    return None if detail is None else (_narrowed(first, second, reference, known), value, detail)


def _narrowed(
    first: ReferenceGraph, second: ReferenceGraph, whole: Computed, known: dict[str, Any]
) -> Computed:
    """Return the reference of the result, with only the nodes that the passes have changed."""
    changed = tuple(
        node
        for node in whole.nodes
        if (same := second.nodes.get(node.name)) is None
        or same.target != node.target
        or [n.name for n in same.all_input_nodes] != [n.name for n in node.all_input_nodes]
    )
    return Computed(whole.eager, whole.exact, whole.jumps, changed or whole.nodes)
