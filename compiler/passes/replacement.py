"""Which values of an ATen graph are the same, and which of them a pass may replace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import may_share_memory, may_write

aten = torch.ops.aten

STRIDE_SENSITIVE = (
    aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default,
    aten._reshape_alias.default,
)  # fmt: skip
"""Operators that address memory directly, so their operands must have eager's layout."""
FIXED_STRIDES = "fixed_strides"
"""Key in the meta of a forward graph's output: how many results must have eager's strides.

The others are only saved for backward; see `partition/saved_tensors.py`.
"""


def same_tensor(a: fx.Node, b: fx.Node) -> bool:
    """Return whether two nodes have tensors of the same dtype, device, size and strides."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    return (
        x.dtype == y.dtype
        and x.device == y.device
        and x.layout == y.layout
        and same_numbers(x.shape, y.shape)
        and (x.layout != torch.strided or same_numbers(x.stride(), y.stride()))
        and x.is_conj() == y.is_conj()
        and x.is_neg() == y.is_neg()
    )


def same_numbers(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    """Return whether sizes are equal as text.

    Comparing symbolic sizes as numbers would add guards.
    """
    return len(a) == len(b) and all(str(x) == str(y) for x, y in zip(a, b, strict=True))


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """Return the values whose memory outlives the graph or may be written to.

    These are the results, operands of calls that may write, and what shares memory with them. A
    replacement of one of them must not share memory with another value.
    """
    return views_of(graph, _with_what_they_view(graph, graph.output_node().all_input_nodes))


def views_of(graph: fx.Graph, values: Iterable[fx.Node]) -> set[fx.Node]:
    """Return given values and those that may share their memory."""
    found = set(values)
    for node in graph.nodes:
        if may_share_memory(node) and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def replace_by_equal(graph: fx.Graph, node: fx.Node, source: fx.Node, kept: set[fx.Node]) -> None:
    """Replace a node by a tensor of equal value. `kept` are the values of `escaping`, updated."""
    if node in kept:
        kept.add(source)
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def strided_as_eager(graph: fx.Graph) -> set[fx.Node]:
    """The values that must keep eager's strides: results that are not only saved, and their bases.

    Operands of calls that may write are among them.
    """
    output = graph.output_node()
    if FIXED_STRIDES not in output.meta:
        return _with_what_they_view(graph, output.all_input_nodes)
    results: Any = output.args[0]
    fixed = [r for r in results[: output.meta[FIXED_STRIDES]] if isinstance(r, fx.Node)]
    return _with_what_they_view(graph, fixed)


def _with_what_they_view(graph: fx.Graph, results: Iterable[fx.Node]) -> set[fx.Node]:
    found = set(results)
    for node in reversed(graph.nodes):
        if node.op == "output":
            continue
        if may_write(node) or (node in found and may_share_memory(node)):
            found.update(node.all_input_nodes)
    return found
