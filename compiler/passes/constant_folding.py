"""Computes at compile time what depends on no input.

Matches pure calls on constants of known size, up to `LARGEST` elements, on a CPU. A value that a
kernel computes at less cost than a load (`INLINED`) stays, unless an operand is folded. A value
whose elements are all equal becomes `full`; others become constants in eager's layout.
Guarantees eager's bits, since eager computes the value.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from tcdebug.compiler import seams
from tcdebug.compiler.effects import is_pure
from tcdebug.compiler.passes.replacement import escaping

aten = torch.ops.aten
prims = torch.ops.prims

LARGEST = 1 << 20
"""The largest number of elements of a folded constant."""

FEWEST_UNIFORM = 1024
"""The fewest equal elements that kernels do not load. Fewer stay in the cache."""

INLINED = frozenset(
    getattr(aten, name)
    for name in (
        "full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "new_zeros", "new_ones",
        "new_full", "scalar_tensor", "arange", "add", "sub", "rsub", "mul", "neg", "abs", "eq",
        "ne", "lt", "le", "gt", "ge", "where", "maximum", "minimum", "clamp", "bitwise_and",
        "bitwise_or", "bitwise_xor", "bitwise_not", "logical_and", "logical_or", "logical_not",
        "tril", "triu", "clone", "_to_copy", "lift_fresh_copy", "alias", "detach", "expand",
        "permute", "transpose", "t", "squeeze", "unsqueeze", "select", "slice", "view",
        "_unsafe_view",
    )
) | {prims.iota, prims.convert_element_type}  # fmt: skip
"""Operators that a kernel computes in place at less cost than a load."""

OF_INDICES = frozenset((aten.fmod, aten.remainder))
"""Operators on int64 that wrap an index around. A kernel has a loop for each time that it does."""


def constant_folding(graph: fx.Graph) -> bool:
    """Compute at compile time what depends on no input and costs more than a load."""
    known, costly = _constants(graph)
    folded = [
        node for node in known if node in costly and any(user not in known for user in node.users)
    ]
    if not folded:
        return False
    values: dict[fx.Node, torch.Tensor] = {}
    with seams.real_tensors():
        for node in known:
            values[node] = _computed(node, values)
        for node in folded:
            _replace(graph, node, values[node])
    return True


def _constants(graph: fx.Graph) -> tuple[dict[fx.Node, None], set[fx.Node]]:
    """Return the nodes that depend on no input, in order, and those of them that are costly."""
    known: dict[fx.Node, None] = {}
    costly: set[fx.Node] = set()
    kept = escaping(graph)
    for node in graph.nodes:
        if node in kept or not _is_small(node):
            continue
        if node.op == "get_attr":
            known[node] = None
        elif is_pure(node) and all(n in known for n in node.all_input_nodes):
            known[node] = None
            target = node.target
            wraps = OF_INDICES if node.meta["val"].dtype == torch.int64 else frozenset()
            cheap = isinstance(target, torch._ops.OpOverload) and (
                target.overloadpacket in INLINED | wraps
            )
            if not cheap or any(n in costly for n in node.all_input_nodes):
                costly.add(node)
    return known, costly


def _is_small(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.layout == torch.strided
        and all(isinstance(n, int) for n in (*value.shape, *value.stride()))
        and value.numel() <= LARGEST
        and not (value.is_conj() or value.is_neg())
    )


def _computed(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> torch.Tensor:
    """Return the value of a constant node, computed in eager."""
    if node.op == "get_attr":
        return torch.as_tensor(operator.attrgetter(str(node.target))(node.graph.owning_module))
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda n: values[n])
    assert callable(node.target)
    result: torch.Tensor = node.target(*args, **kwargs)
    return result


def _once(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """A view without repetition: dimensions of stride 0 in the layout are cut to length 1."""
    for dim, (size, stride) in enumerate(zip(expected.shape, expected.stride(), strict=True)):
        if stride == 0 and size > 1:
            value = value.narrow(dim, 0, 1)
    return value


def _is_uniform(value: torch.Tensor) -> bool:
    """Return whether all elements have the same bits."""
    if value.numel() < FEWEST_UNIFORM or value.dtype.is_complex:
        return False
    elements = value.contiguous().view(torch.uint8).view(-1, value.dtype.itemsize)
    return torch.equal(elements, elements[:1].expand_as(elements))


def _replace(graph: fx.Graph, node: fx.Node, value: torch.Tensor) -> None:
    """Replace a node by a constant with the node's layout.

    A number in each element is not kept in memory: a kernel has it in a register.
    """
    expected = node.meta["val"]
    if _is_uniform(value):
        with graph.inserting_before(node):
            options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
            size, number = list(value.shape), value.flatten()[0].item()
            full = graph.call_function(aten.full.default, (size, number), options)
        full.meta = dict(node.meta)
        node.replace_all_uses_with(full)
        graph.erase_node(node)
        return
    laid_out = torch.empty_strided(expected.shape, expected.stride(), dtype=expected.dtype)
    _once(laid_out, expected).copy_(_once(value, expected))
    module = graph.owning_module
    assert module is not None
    name = f"folded_{node.name}"
    module.register_buffer(name, laid_out, persistent=False)
    with graph.inserting_before(node):
        constant = graph.get_attr(name)
    constant.meta = dict(node.meta)
    node.replace_all_uses_with(constant)
    graph.erase_node(node)
