"""Finds the first wrong value of a graph in one run, and the call that may fail alone.

A search for the shortest failing prefix compiles the graph once per halving. A graph that returns
all its values shows in a single run which of them is wrong first. That is only a guess: kernels
that store more values may be fused differently. The call counts only if it fails by itself.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from tcdebug.minifier.cases.case import Case, recorded_value
from tcdebug.minifier.cases.placement import ExampleTensor, example_tensor
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.operators.cut_nodes import CutNodes
from tcdebug.minifier.reduction.operators.regions import changes_state
from tcdebug.minifier.reduction.operators.surgery import (
    MOST_BYTES,
    UNWRITTEN,
    editable,
    name_of,
    remove_dead,
    set_outputs,
    writes,
)
from tcdebug.minifier.reduction.operators.transforms import is_part, transforms
from tcdebug.minifier.reduction.operators.truncate import Truncate

LEAST_CALLS = 4
"""Smaller graphs are truncated in as few runs."""
COPIES = 4
"""The runs whose values are in memory at the same time: eager, compiled, float64."""


@dataclass(frozen=True)
class ReturnedValues:
    """A graph that returns its values, in the order in which they are complete.

    Integers come after floats. Among equal numbers a compiler may choose another index than eager,
    which need not matter for what follows.
    """

    whole: Case
    case: Case
    completed_by: tuple[str, ...]
    """For each result, the call that computes it, or that writes to it last."""

    def part(self, wrong: int) -> Case | None:
        """Return the call that completes a result, with its operands as inputs.

        It has eager's operands, so that a difference in rounding before it cannot make it fail.
        None if the call cannot be taken out of the graph.
        """
        return call_alone(self.whole, self.completed_by[wrong])


def call_alone(whole: Case, name: str) -> Case | None:
    """Return one call of a graph, with its operands as inputs.

    None if the graph has no other, or if the call cannot be taken out of it.
    """
    later = Truncate().edits(whole)
    later = later[: later.index(name)] if name in later else later
    prefix = Truncate().apply(whole, later) if later else whole
    if prefix is None:
        return None
    kept = _with_operand(next(n for n in prefix.calls if n.name == name))
    others = [edit for edit in CutNodes().edits(prefix) if edit not in kept]
    return CutNodes().apply(prefix, others) if others else None


def returned_values(whole: Case) -> ReturnedValues | None:
    """Return the graph that returns all values of another, without gradients.

    None if the graph is small, if its values take much memory or may be unwritten, or if some exist
    only inside a vmap or another transform.
    """
    calls = whole.calls
    if len(calls) < LEAST_CALLS or transforms(whole.graph) != []:
        return None
    if any(name_of(node) in UNWRITTEN for node in calls):
        return None
    found = _completed(calls)
    if not found or COPIES * sum(_bytes(node) for _, node in found) > MOST_BYTES:
        return None
    graph, named = editable(whole)
    set_outputs(graph, [named[node.name] for _, node in found])
    remove_dead(graph)
    returning = whole.with_graph(graph)
    plain = DropGradients().apply(returning, DropGradients().edits(returning))
    if plain is None:
        return None
    return ReturnedValues(whole, plain, tuple(last.name for last, _ in found))


def _completed(calls: Sequence[fx.Node]) -> list[tuple[fx.Node, fx.Node]]:
    """Return the calls that compute tensors, each after the one that completes its value.

    That is itself, or the last call that writes to its memory.
    """
    order = {node: place for place, node in enumerate(calls)}
    last_write: dict[int, fx.Node] = {}
    for node in calls:
        if writes(node) and node.args and isinstance(node.args[0], fx.Node):
            last_write[_memory(node.args[0])] = node
    found = [
        (max(node, last_write.get(_memory(node), node), key=order.__getitem__), node)
        for node in calls
        if _is_tensor(node)
    ]
    return sorted(found, key=lambda pair: (not _has_floats(pair[1]), order[pair[0]]))


def _memory(node: fx.Node) -> int:
    """Return a number that tensors share if they were views of one another in the trace."""
    example = _example(node)
    return id(node) if example is None or example.memory is None else example.memory


def _with_operand(node: fx.Node) -> set[str]:
    """Return the name of a call, and of the call that computes the tuple from which it takes."""
    taken = node.all_input_nodes if node.target is operator.getitem else []
    return {node.name, *(n.name for n in taken if n.op.startswith("call") and not _is_tensor(n))}


def _is_tensor(node: fx.Node) -> bool:
    """Return whether a call is known to compute a tensor."""
    return _example(node) is not None and not is_part(node) and not changes_state(node)


def _has_floats(node: fx.Node) -> bool:
    example = _example(node)
    assert example is not None
    return example.dtype.is_floating_point or example.dtype.is_complex


def _bytes(node: fx.Node) -> int:
    """Return the size of a tensor, if it was known at capture; else more than there may be."""
    example = _example(node)
    assert example is not None
    return MOST_BYTES if example.bytes is None else example.bytes


def _example(node: fx.Node) -> ExampleTensor | None:
    """Return the tensor that a call had in its trace, by Dynamo or by another tracer."""
    return example_tensor(recorded_value(node))
