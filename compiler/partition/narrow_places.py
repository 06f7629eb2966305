"""partition.narrow_places: save the places of extremes for backward in as few bytes as hold them.

Operators that choose elements give their places in 64 bits. A place in a plane of 56 x 56 fits into
16, and one in a row of 100 into 8. Forward narrows such places where it returns them, and backward
widens them where it reads them.

On CPUs, a loop over elements of several widths may take longer: pooling in float32 and its gradient
took 1.9 times as long.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.gate.gate import Gate

UNIT = "partition.narrow_places"
aten = torch.ops.aten

DEVICES = ("cuda",)
"""Where places are narrowed."""
WIDTHS = ((1 << 8, torch.uint8), (1 << 15, torch.int16), (1 << 31, torch.int32))
"""How many different places a dtype holds."""
RESHAPED = (aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.view.default)
"""Operators whose result has the numbers of the first operand."""


def _of_plane(dims: int) -> Callable[[fx.Node], Any]:
    """The places in the last dimensions of the first operand."""
    return lambda node: prod(_operand(node).meta["val"].shape[-dims:])


def _of_row(node: fx.Node) -> Any:
    """The places along the dimension that the second operand names."""
    shape = _operand(node).meta["val"].shape
    return shape[node.args[1]] if shape else 1


PLACES: dict[object, Callable[[fx.Node], Any]] = {
    aten.max_pool2d_with_indices.default: _of_plane(2),
    aten.max_pool3d_with_indices.default: _of_plane(3),
    aten.adaptive_max_pool2d.default: _of_plane(2),
    aten.adaptive_max_pool3d.default: _of_plane(3),
    aten.max.dim: _of_row,
    aten.min.dim: _of_row,
    aten.cummax.default: _of_row,
    aten.cummin.default: _of_row,
}
"""Operator whose second result are places, which kernels compute -> how many there are."""


def narrow(forward: fx.GraphModule, backward: fx.GraphModule, visible: int, gate: Gate) -> None:
    """Narrow the places among forward's results that follow the `visible` ones.

    Backward's inputs have the names of the results that they are.
    """
    output: Any = forward.graph.output_node()
    given, results = output.args[0], list(output.args[0])
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    for position, result in enumerate(results[visible:], visible):
        source = _reshaped(result) if isinstance(result, fx.Node) else None
        if source is None or source in results[:visible] or result.name not in inputs:
            continue  # a number, or what exists anyway
        dtype = _narrowest(_places(source))
        if dtype is not None and gate.allows(UNIT, result.name):
            results[position] = _converted(forward.graph, output.prepend, result, dtype)
            _widen(backward.graph, inputs[result.name], dtype)
    if results != list(given):
        output.args = (type(given)(results),)
        forward.recompile()
        backward.recompile()


def _reshaped(node: fx.Node) -> fx.Node:
    """Return what a node has the numbers of."""
    while node.target in RESHAPED:
        node = _operand(node)
    return node


def _places(node: fx.Node) -> Any:
    """Return how many places a result counts; None if it has no places."""
    if node.target is not operator.getitem or node.args[1] != 1:
        return None
    source = _operand(node)
    known = source.target in PLACES and node.meta["val"].device.type in DEVICES
    return PLACES[source.target](source) if known else None


def _operand(node: fx.Node) -> Any:
    return node.args[0]


def _narrowest(count: Any) -> torch.dtype | None:
    """Return the smallest dtype that holds so many places; None for a count that is not known."""
    if not isinstance(count, int):
        return None
    return next((dtype for most, dtype in WIDTHS if count <= most), None)


def _widen(backward: fx.Graph, given: fx.Node, dtype: torch.dtype) -> None:
    """Let the readers of an input that comes in a narrow dtype read it in its own."""
    value = given.meta["val"]
    *_, last = backward.find_nodes(op="placeholder")
    given.meta = {**given.meta, "val": value.to(dtype)}
    wide = _converted(backward, last.append, given, value.dtype)
    given.replace_all_uses_with(wide, delete_user_cb=lambda user: user is not wide)


def _converted(
    graph: fx.Graph, place: Callable[[fx.Node], None], node: fx.Node, dtype: torch.dtype
) -> fx.Node:
    """Add a conversion to a graph, at a place."""
    made = graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    place(made)
    made.meta = {**node.meta, "val": node.meta["val"].to(dtype)}
    return made
