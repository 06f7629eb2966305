"""passes.aligned_products"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tcdebug.compiler.passes.purity import escaping, may_alias
from tcdebug.compiler.passes.unfused_bias import READERS_OF_MEMORY, on_gpu, read_by_loops

aten = torch.ops.aten

HALVES = (torch.bfloat16, torch.float16)
ALIGNED = 8
"""Elements of a half type in the 16 bytes that tensor cores are fed with at a time."""
WORTH = 1 << 30
"""Multiplications of a product for which a copy of an operand pays."""
TRANSPOSES = (aten.t.default, aten.permute.default, aten.transpose.int)


def aligned_products(graph: fx.Graph) -> bool:
    """On a GPU, rows of large products of halves begin at multiples of 16 bytes.

    cuBLAS has to take slow kernels for others, as those of a vocabulary of 50257. What loops
    compute is stored with a gap behind each row, and a result that loops read is computed with one.
    """
    kept = escaping(graph)
    changed = False
    for node in list(graph.nodes):
        if node.target is not aten.mm.default or not on_gpu(node) or not _large(node):
            continue
        for position in (0, 1):
            operand = node.args[position]
            aligned = _aligned_operand(graph, node, operand)
            if aligned is not None:
                node.update_arg(position, aligned)
                changed = True
        if node not in kept and read_by_loops(node):
            changed |= _aligned_result(graph, node)
    return changed


def _sizes(node: fx.Node) -> list[int] | None:
    """The sizes of a plain row-major matrix; None for others, and where they are not known."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 2:
        return None
    numbers = (*value.shape, *value.stride())
    if not all(isinstance(n, int) for n in numbers) or value.stride() != (value.shape[1], 1):
        return None
    return [int(n) for n in value.shape]


def _operands(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    left, right = node.args
    assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
    return left, right


def _large(node: fx.Node) -> bool:
    left, right = (operand.meta["val"] for operand in _operands(node))
    numbers = (*left.shape, right.shape[1])
    if left.dtype not in HALVES or not all(isinstance(n, int) for n in numbers):
        return False
    work: int = left.shape[0] * left.shape[1] * right.shape[1]
    return work >= WORTH


def _aligned_operand(graph: fx.Graph, product: fx.Node, operand: Any) -> fx.Node | None:
    """An operand, or what it is the transpose of, in rows with a gap; None where that is no use."""
    turned = operand.target in TRANSPOSES
    matrix = operand.args[0] if turned else operand
    sizes = _sizes(matrix)
    if sizes is None or sizes[1] % ALIGNED == 0 or matrix.op != "call_function":
        return None
    if not _computed_by_loops(matrix):
        return None  # in memory already: to copy it costs what the product would gain
    with graph.inserting_before(product):
        padded = _call(graph, aten.constant_pad_nd.default, matrix, [0, _gap(sizes[1])])
        rows = _call(graph, aten.slice.Tensor, padded, 1, 0, sizes[1])
        return _call(graph, operand.target, rows, *operand.args[1:]) if turned else rows


def _computed_by_loops(node: fx.Node) -> bool:
    """Whether a value, or what it is a view of, is no input and no result of a library."""
    while node.op == "call_function" and may_alias(node.target):
        node = node.all_input_nodes[0]
    return node.op == "call_function" and node.target not in READERS_OF_MEMORY


def _aligned_result(graph: fx.Graph, node: fx.Node) -> bool:
    """The product with more columns than are asked for, and a view of those that are."""
    sizes = _sizes(node)
    right: Any = node.args[1]
    turned = right.target in TRANSPOSES
    matrix = right.args[0] if turned else right
    if sizes is None or sizes[1] % ALIGNED == 0 or _sizes(matrix) is None:
        return False
    gap = _gap(sizes[1])
    with graph.inserting_before(node):
        padding = [0, 0, 0, gap] if turned else [0, gap]
        padded = _call(graph, aten.constant_pad_nd.default, matrix, padding)
        if turned:
            padded = _call(graph, right.target, padded, *right.args[1:])
        product = _call(graph, aten.mm.default, node.args[0], padded)
        columns = _call(graph, aten.slice.Tensor, product, 1, 0, sizes[1])
    columns.meta = {**node.meta, "val": columns.meta["val"]}
    node.replace_all_uses_with(columns)
    graph.erase_node(node)
    return True


def _gap(size: int) -> int:
    return -size % ALIGNED


def _call(graph: fx.Graph, target: Any, *args: Any) -> fx.Node:
    """A call with the fake tensor that it gives."""
    node = graph.call_function(target, args)
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
    node.meta["val"] = target(*values)
    source = next(a for a in args if isinstance(a, fx.Node))
    if trace := source.meta.get("stack_trace"):
        node.meta["stack_trace"] = trace
    return node
