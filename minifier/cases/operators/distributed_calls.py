"""Calls of distributed tensors that Dynamo of torch 2.11 captures as functions of its own.

Such a function holds the mesh and the placements of `DTensor.from_local`, `redistribute` or
`to_local`. It has no name in any module, so that no other process could call it. The graph of a
case has the call itself, as later versions of torch capture it: placements are constants, and a
mesh is an argument of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.subclasses.text import PLACED, is_mesh, is_placement, placement_text

FROM_LOCAL = "prim from_local"
METHODS = {"prim_redistribute": "redistribute", "prim_to_local": "to_local"}
"""The methods that Dynamo's functions call, by the names of these functions."""


def with_distributed_calls(
    module: fx.GraphModule, values: Sequence[Any]
) -> tuple[fx.GraphModule, list[Any]]:
    """Return a module with calls for Dynamo's functions, and its arguments with the meshes.

    These are the module and the arguments themselves if there are no such functions.
    """
    functions = [node for node in module.graph.nodes if _is_function(node)]
    if not functions:
        return module, list(values)
    graph, copies = copy_graph(module.graph)
    meshes: dict[Any, fx.Node] = {}
    for node in functions:
        _restore(graph, copies[node], meshes)
    return fx.GraphModule(module, graph), [*values, *meshes]


def _is_function(node: fx.Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return (
        node.op == "call_function"
        and (name == FROM_LOCAL or name in METHODS)
        and getattr(node.target, "__closure__", None) is not None
    )


def _restore(graph: fx.Graph, node: fx.Node, meshes: dict[Any, fx.Node]) -> None:
    """Make a node call what its function calls. Meshes become arguments, added to `meshes`."""
    function: Any = node.target
    cells = [cell.cell_contents for cell in function.__closure__]
    held = dict(zip(function.__code__.co_freevars, cells, strict=True))

    def argument(value: Any) -> Any:
        if not is_mesh(value):
            return tuple(value) if isinstance(value, list) else value
        if value not in meshes:
            first = next(n for n in graph.nodes if n.op != "placeholder")
            with graph.inserting_before(first):
                meshes[value] = graph.placeholder(f"mesh_{len(meshes)}")
        return meshes[value]

    node.args = (*node.args, *map(argument, held["args_as_value"]))
    options = {name: argument(value) for name, value in held["kwargs_as_value"].items()}
    node.kwargs = {**node.kwargs, **options}
    if function.__name__ == FROM_LOCAL:
        node.target = held["self"].value
    else:
        node.op, node.target = "call_method", METHODS[function.__name__]


def is_placed(node: fx.Node) -> bool:
    """Return whether fx cannot write a call: of a static method, or with placements."""
    return (node.op == "call_function" and _is_from_local(node.target)) or bool(_placements(node))


def placed_line(line: str, node: fx.Node) -> str:
    """Return the line of such a call with names that exist. Raises NoText."""
    for placement in _placements(node):
        line = line.replace(repr(placement), placement_text(placement))
    return line.replace(f"{PLACED}._api.from_local(", f"{PLACED}.DTensor.from_local(")


def _is_from_local(target: Any) -> bool:
    return getattr(target, "__qualname__", "") == "DTensor.from_local"


def _placements(node: fx.Node) -> list[Any]:
    """Return the placements that a call has, unless fx of this version of torch can write them."""
    found: list[Any] = []
    fx.node.map_aggregate((node.args, node.kwargs), found.append)
    placements = [v for v in found if is_placement(v) and not hasattr(v, "__fx_repr__")]
    return list(dict.fromkeys(placements))
