"""What reductions share: copies of graphs with nodes replaced, dead code gone, outputs chosen."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.ambient import restored
from tcdebug.minifier.case import Case, Input, clone_values, copy_graph, tensors_of
from tcdebug.minifier.reductions.regions import changes_state, regions
from tcdebug.minifier.replay import SEED

WRITING = {
    "setitem", "delitem", "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior",
    "ipow", "irshift", "isub", "itruediv", "ixor",
}  # fmt: skip
"""Functions of `operator` that change their first argument."""

MOST_BYTES = 4 << 30
"""Intermediate values of a graph that are kept for cutting it."""


class TooLarge(Exception):
    """The intermediate values of a graph do not fit."""


def editable(case: Case) -> tuple[fx.Graph, dict[str, fx.Node]]:
    """A copy of a case's graph, and its nodes by the names they have in the original."""
    graph, copies = copy_graph(case.graph)
    return graph, {node.name: copy for node, copy in copies.items()}


def remove_dead(graph: fx.Graph) -> None:
    """Remove what nobody reads. Calls that do more than give a value stay until an edit."""
    for node in reversed(list(graph.nodes)):
        kept = node.op in ("placeholder", "output") or writes(node) or changes_state(node)
        if not node.users and not kept:
            graph.erase_node(node)
    _remove_empty_regions(graph)


def _remove_empty_regions(graph: fx.Graph) -> None:
    """Remove regions in which nothing is computed, the innermost first."""
    found = True
    while found:
        found = False
        for start, end in regions(graph):
            if start.next is end:
                graph.erase_node(end)
                graph.erase_node(start)
                found = True


def writes(node: fx.Node) -> bool:
    """Whether a call changes one of its arguments."""
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = getattr(node.target, "__name__", "")
    if getattr(operator, name, None) is node.target:
        return name in WRITING
    in_place = name.endswith("_") and not name.startswith("_")
    return in_place or "out" in node.kwargs or node.kwargs.get("inplace") is True


def _silent(node: fx.Node) -> bool:
    """Whether a call gives nothing that could be returned."""
    return changes_state(node) or node.target in (operator.setitem, operator.delitem)


def leaves(graph: fx.Graph) -> list[fx.Node]:
    """The values that nobody reads: what a truncated graph returns."""
    return [
        n
        for n in graph.nodes
        if n.op.startswith("call")
        and not _silent(n)
        and not [u for u in n.users if u.op != "output" and not _silent(u)]
    ]


def set_outputs(graph: fx.Graph, outputs: Sequence[fx.Node]) -> None:
    """Make a graph return these values."""
    graph.output_node().args = (tuple(outputs),)


def node_values(case: Case) -> dict[str, Any]:
    """What every call of a graph gives in eager, copied when it is computed.

    Values inside a vmap are left out: they mean nothing outside it. Raises TooLarge.
    """
    recorder = _Recorder(case.module)
    torch.manual_seed(SEED)
    with restored(), torch.no_grad():
        recorder.run(*clone_values(case.values()))
    return recorder.values


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}
        self._bytes = 0

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op.startswith("call") and not any(map(_is_batched, tensors_of(result))):
            self._bytes += sum(t.numel() * t.element_size() for t in tensors_of(result))
            if self._bytes > MOST_BYTES:
                raise TooLarge
            self.values[n.name] = clone_values([result])[0]
        return result


def _is_batched(value: torch.Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def replace_by_inputs(
    case: Case, chosen: Sequence[str], values: Mapping[str, Any]
) -> Case | None:
    """The case with nodes replaced by inputs that hold what the nodes gave."""
    graph, named = editable(case)
    first = next(n for n in graph.nodes if n.op != "placeholder")
    inputs = list(case.inputs)
    nodes = {named[name]: name for name in chosen}
    for node in [n for n in reversed(graph.nodes) if n in nodes]:
        name = nodes[node]
        value = values.get(name)
        if not node.users:
            graph.erase_node(node)
            continue
        if not isinstance(value, torch.Tensor | int | float | bool):
            return None
        given = f"{name}_value"
        with graph.inserting_before(first):
            placeholder = graph.placeholder(given)
        placeholder.meta = dict(node.meta)
        node.replace_all_uses_with(placeholder)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value = value.detach().requires_grad_(_needs_gradient(node))
        inputs.append(Input(given, value))
    return finished(case, graph, inputs)


def _needs_gradient(node: fx.Node) -> bool:
    example = node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and example.requires_grad


def finished(
    case: Case, graph: fx.Graph, inputs: Sequence[Input] | None = None
) -> Case | None:
    """A case of an edited graph, None where nothing is left to run."""
    remove_dead(graph)
    outputs = [n for n in graph.output_node().all_input_nodes if n.op.startswith("call")]
    if not outputs:
        outputs = leaves(graph)
    if not outputs:
        return None
    set_outputs(graph, list(dict.fromkeys(outputs)))
    remove_dead(graph)
    return case.with_graph(graph, inputs)
