"""Removes copies and views that leave their operand unchanged.

Matches the operators in `COPIES` and `VIEWS` if dtype, device, size, strides and the order of
elements stay the same. A copy that is returned, or is made of an input or of a view of one, stays:
either tensor may be written to later.
"""

from __future__ import annotations

import torch
from torch import fx

from tcdebug.compiler.passes.replacement import escaping, replace_by_equal, same_tensor, views_of

aten = torch.ops.aten
prims = torch.ops.prims

COPIES = (aten.clone.default, aten._to_copy.default, prims.convert_element_type.default)
VIEWS = (
    aten.alias.default,
    aten.detach.default,
    aten.expand.default,
    aten.permute.default,
    aten.slice.Tensor,
    aten.view.default,
    aten._unsafe_view.default,
    aten.squeeze.dims,
)


def noop_elimination(graph: fx.Graph) -> bool:
    """Remove copies and views that leave their operand unchanged."""
    returned, kept = set(graph.output_node().all_input_nodes), escaping(graph)
    given = views_of(graph, (node for node in graph.nodes if node.op != "call_function"))
    changed = False
    for node in list(graph.nodes):
        if node.target not in COPIES and node.target not in VIEWS:
            continue
        source = node.args[0]
        if not isinstance(source, fx.Node) or not same_tensor(node, source):
            continue
        if node in returned or not _same_order(node):
            continue
        if node.target in COPIES and (source in given or {node, source} <= kept):
            continue
        replace_by_equal(graph, node, source, kept)
        changed = True
    return changed


def _same_order(node: fx.Node) -> bool:
    """Return whether elements keep their order.

    A permutation or slice of equal sizes may move them.
    """
    if node.target is aten.permute.default:
        dims = node.args[1]
        return list(dims) == sorted(dims)  # type: ignore[arg-type] # a list of int
    if node.target is aten.slice.Tensor:
        start = node.args[2] if len(node.args) > 2 else 0
        step = node.args[4] if len(node.args) > 4 else 1
        return bool(start in (0, None) and step == 1)
    return True
