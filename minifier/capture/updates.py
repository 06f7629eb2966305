"""Makes arguments of the attributes that a captured graph writes to, so that they are compared.

Dynamo passes the parameters and the state of an optimizer as attributes of the graph. The graph of
a compiled step updates these, and may return nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput, flatten
from tcdebug.minifier.cases.operators.graph_copies import copy_graph

ASSIGNING = (operator.setitem, setattr)
"""Functions that write to their first argument."""


def updates_as_inputs(case: Case) -> Case:
    """Return a case whose graph takes what it updates as arguments instead of as attributes."""
    tensors = {n: v for n, v in case.attributes().items() if isinstance(v, torch.Tensor)}
    updated = {str(node.target) for node in _updated(case.graph)} & tensors.keys()
    if not updated:
        return case
    graph, _ = copy_graph(case.graph)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    taken = {node.name for node in graph.nodes if str(node.target) not in updated}
    arguments: dict[str, fx.Node] = {}
    for name in filter(updated.__contains__, tensors):
        with graph.inserting_before(first):
            arguments[name] = graph.placeholder(_free(name.replace(".", "_"), taken))
    for node in list(graph.nodes):
        if node.op == "get_attr" and (argument := arguments.get(str(node.target))) is not None:
            argument.meta.update(node.meta)
            node.replace_all_uses_with(argument)
            graph.erase_node(node)
    added = (CaseInput(str(node.target), tensors[name]) for name, node in arguments.items())
    return case.with_graph(graph, [*case.inputs, *added])


def _updated(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the attributes whose memory a call may write to, also through views."""
    for call in graph.nodes:
        for written in _written(call):
            found: fx.Node | None = written
            while found is not None and found.op != "get_attr":
                found = next((a for a in flatten(found.args[:1]) if isinstance(a, fx.Node)), None)
            if found is not None:
                yield found


def _written(call: fx.Node) -> list[fx.Node]:
    """Return the arguments that a call may write to."""
    schema = getattr(call.target, "_schema", None)
    name = str(getattr(call.target, "__name__", call.target)).partition(".")[0]
    if getattr(schema, "is_mutable", False):
        written = flatten([*call.args, *call.kwargs.values()])
    elif call.target in ASSIGNING or (name.endswith("_") and not name.endswith("__")):
        written = flatten(call.args[:1])
    else:
        written = flatten(call.kwargs.get("out"))
    return [argument for argument in written if isinstance(argument, fx.Node)]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
