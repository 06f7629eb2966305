"""passes.aligned_products"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.passes.purity import escaping
from tcdebug.compiler.passes.unfused_bias import on_gpu, read_by_loops

aten = torch.ops.aten

HALVES = (torch.bfloat16, torch.float16)
ALIGNED = 8
"""Elements of a half type in the 16 bytes that tensor cores are fed with at a time."""
WORTH = 1 << 30
"""Multiplications of a product for which a copy of an operand pays."""
REUSED = 256
"""How often each element has to be used for that, at least."""
PRODUCTS = (aten.mm.default, aten.addmm.default)
TRANSPOSES = (aten.t.default, aten.permute.default, aten.transpose.int)


def aligned_products(graph: fx.Graph) -> bool:
    """On a GPU, rows of large products of halves begin at multiples of 16 bytes.

    cuBLAS has to take slow kernels for others, as those of a vocabulary of 50257. What is loaded
    is stored with a gap behind each row; the result is computed with one, and copied where it has
    to be without.
    """
    kept = escaping(graph)
    changed = False
    for node in list(graph.nodes):
        if node.target not in PRODUCTS or node.kwargs or not on_gpu(node) or not _large(node):
            continue
        for operand in _operands(node):
            aligned = _aligned_operand(graph, node, operand)
            if aligned is not None:
                node.replace_input_with(operand, aligned)
                changed = True
        changed |= _aligned_result(graph, node, view=node not in kept and read_by_loops(node))
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
    left, right = node.args[-2:]
    assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
    return left, right


def _large(node: fx.Node) -> bool:
    """Whether the product gains more than copies of what it reads and writes cost."""
    left, right = (operand.meta["val"] for operand in _operands(node))
    numbers = (*left.shape, right.shape[1])
    if left.dtype not in HALVES or not all(isinstance(n, int) for n in numbers):
        return False
    sizes = [int(n) for n in numbers]
    return math.prod(sizes) >= WORTH and min(sizes) >= REUSED


def _base(operand: fx.Node) -> tuple[Any, bool]:
    """An operand without its transposition, and whether there was one."""
    turned = operand.target in TRANSPOSES
    return (operand.args[0] if turned else operand), turned


def _aligned_operand(graph: fx.Graph, product: fx.Node, operand: fx.Node) -> fx.Node | None:
    """An operand, or what it is the transpose of, in rows with a gap; None where it is aligned."""
    matrix, turned = _base(operand)
    sizes = _sizes(matrix)
    if sizes is None or sizes[1] % ALIGNED == 0:
        return None
    with graph.inserting_before(product):
        padded = _call(graph, aten.constant_pad_nd.default, matrix, [0, _gap(sizes[1])])
        rows = _call(graph, aten.slice.Tensor, padded, 1, 0, sizes[1])
        return _call(graph, operand.target, rows, *operand.args[1:]) if turned else rows


def _aligned_result(graph: fx.Graph, node: fx.Node, *, view: bool) -> bool:
    """The product with more columns than are asked for, and those that are: a view or a copy."""
    sizes = _sizes(node)
    left, right = _operands(node)
    matrix, turned = _base(right)
    if sizes is None or sizes[1] % ALIGNED == 0 or _sizes(matrix) is None:
        return False
    gap = _gap(sizes[1])
    with graph.inserting_before(node):
        padded = _call(
            graph, aten.constant_pad_nd.default, matrix, [0, 0, 0, gap] if turned else [0, gap]
        )
        if turned:
            padded = _call(graph, right.target, padded, *right.args[1:])
        bias = [_call(graph, aten.constant_pad_nd.default, b, [0, gap]) for b in node.args[:-2]]
        product = _call(graph, node.target, *bias, left, padded)
        columns = _call(graph, aten.slice.Tensor, product, 1, 0, sizes[1])
        if not view:
            columns = _call(graph, aten.clone.default, columns)
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
