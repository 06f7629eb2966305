"""Decides which calls of an ATen graph may be removed, merged or moved."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

UNSAFE_VIEWS = (aten._unsafe_view.default,)
READERS_OF_PLACES = (
    aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default,
    aten._reshape_alias.default,
)  # fmt: skip
"""Operators that address memory directly, so their operands must have eager's layout."""
SEEN = "seen"
"""Key in the meta of a forward graph's output: how many results are not only saved for backward.

The others may have any strides; see `partition/saved_tensors.py`.
"""


def is_pure(node: fx.Node) -> bool:
    """Return whether a call is deterministic and has no side effect."""
    if node.op != "call_function":
        return False
    target = node.target
    if target is operator.getitem:
        return True
    if isinstance(target, torch._ops.OpOverload):
        if target.namespace not in ("aten", "prims") or target._schema.is_mutable:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags or not target._schema.returns:
            return False
        return not node.meta.get("unbacked_bindings")
    return getattr(target, "__module__", "") in ("_operator", "math", "torch")


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

    These are the results and the tensors that they view, and operands of calls that may write. A
    replacement of one of them must not share memory with another value.
    """
    return _with_what_they_view(graph, graph.output_node().all_input_nodes)


def replace_by_equal(graph: fx.Graph, node: fx.Node, source: fx.Node, kept: set[fx.Node]) -> None:
    """Replace a node by a tensor of equal value. `kept` are the values of `escaping`, updated."""
    if node in kept:
        kept.add(source)
    node.replace_all_uses_with(source)
    graph.erase_node(node)


def strided_as_eager(graph: fx.Graph) -> set[fx.Node]:
    """The values that must keep eager's strides: `escaping` without tensors that are only saved."""
    output = graph.output_node()
    if SEEN not in output.meta:
        return escaping(graph)
    results: Any = output.args[0]
    seen = [r for r in results[: output.meta[SEEN]] if isinstance(r, fx.Node)]
    return _with_what_they_view(graph, seen)


def _with_what_they_view(graph: fx.Graph, results: Iterable[fx.Node]) -> set[fx.Node]:
    found = set(results)
    for node in reversed(graph.nodes):
        if node.op == "output":
            continue
        if exposes(node) or (node in found and may_alias(node.target)):
            found.update(node.all_input_nodes)
    return found


def exposes(node: fx.Node) -> bool:
    """Return whether a call may write to its operands, or alias them without declaring it."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    return node.target.namespace not in ("aten", "prims") or node.target._schema.is_mutable


def may_alias(target: object) -> bool:
    """Return whether a result may share memory with an operand."""
    if not isinstance(target, torch._ops.OpOverload):
        return True
    returns = target._schema.returns
    # the schema of _unsafe_view does not declare that it shares memory
    return target in UNSAFE_VIEWS or any(r.alias_info is not None for r in returns)
