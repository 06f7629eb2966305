"""passes.aligned_products"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.operators.product_in_pieces import product_in_pieces, rows_of_a_piece
from tcdebug.compiler.passes.purity import strided_as_eager
from tcdebug.compiler.passes.strides import restride
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

Gaps = tuple[int, int, int]
"""Zeros behind the rows, the elements that are summed over, and the columns of a product."""


def aligned_products(graph: fx.Graph) -> bool:
    """On a GPU, large products of halves have sizes that 8 divides, zeros added.

    cuBLAS has to take slow kernels for others, as those of a vocabulary of 50257: a step from one
    row in memory to the next that 16 bytes divide is not enough where that size is summed over.
    What is loaded is stored with zeros behind it. Of the result there are more rows, which nobody
    reads, and more columns, which are left out by a copy where they must not be there: of a large
    result piece by piece.
    """
    kept = strided_as_eager(graph)
    padded: dict[tuple[fx.Node, int, int], fx.Node] = {}
    changed = False
    for node in list(graph.nodes):
        if node.target not in PRODUCTS or node.kwargs or not on_gpu(node) or not _large(node):
            continue
        gaps = _gaps(node)
        if gaps is None or not any(gaps):
            continue
        changed = True
        view = node not in kept and read_by_loops(node)
        with graph.inserting_before(node):
            target, given = node.target, _padded_operands(graph, node, gaps, padded)
            if gaps[2] and not view and _has_pieces(given):
                result = _in_pieces(graph, node, given)
            else:
                result = _without_gaps(graph, _call(graph, target, *given), node, view=view)
        result.meta = {**node.meta, "val": result.meta["val"]}
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        if view:
            restride(graph, result, result.meta["val"], results=True)
    return changed


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


def _turned(operand: fx.Node) -> bool | None:
    """Whether the columns of a matrix are contiguous rather than its rows; None where neither."""
    value = operand.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 2:
        return None
    return None if 1 not in value.stride() else value.stride(1) != 1


def _gaps(node: fx.Node) -> Gaps | None:
    """What is missing of rows, sums and columns; None where an operand does not lie in rows.

    A size matters along which somebody's elements stand next to each other in memory.
    """
    left, right = _operands(node)
    left_turned, right_turned = _turned(left), _turned(right)
    if left_turned is None or right_turned is None:
        return None
    rows, depth = (int(n) for n in left.meta["val"].shape)
    columns = int(right.meta["val"].shape[1])
    return (
        _gap(rows) if left_turned else 0,
        0 if left_turned and not right_turned else _gap(depth),
        _gap(columns),
    )


def _padded_operands(
    graph: fx.Graph, node: fx.Node, gaps: Gaps, padded: dict[tuple[fx.Node, int, int], fx.Node]
) -> list[fx.Node]:
    """What a product is computed from, with zeros behind it."""
    rows, depth, columns = gaps
    left, right = _operands(node)
    biases = [bias for bias in node.args[:-2] if isinstance(bias, fx.Node)]
    size = [int(n) for n in node.meta["val"].shape]
    return [
        *(_padded_bias(graph, bias, size, (rows, columns)) for bias in biases),
        _padded_operand(graph, left, rows, depth, padded),
        _padded_operand(graph, right, depth, columns, padded),
    ]


def _padded_operand(
    graph: fx.Graph,
    operand: fx.Node,
    rows: int,
    columns: int,
    padded: dict[tuple[fx.Node, int, int], fx.Node],
) -> fx.Node:
    if not rows and not columns:
        return operand
    if _turned(operand):
        source = operand.args[0] if operand.target in TRANSPOSES else None
        if not isinstance(source, fx.Node) or _turned(source) is not False:
            source = _call(graph, aten.t.default, operand)
        rows_of_source = _padded_operand(graph, source, columns, rows, padded)
        return _call(graph, aten.t.default, rows_of_source)
    key = (operand, rows, columns)
    if key not in padded:
        padded[key] = _call(graph, aten.constant_pad_nd.default, operand, [0, columns, 0, rows])
    return padded[key]


def _padded_bias(
    graph: fx.Graph, bias: fx.Node, size: list[int], gaps: tuple[int, int]
) -> fx.Node:
    """A bias, which may be one row or a number, as large as the product where it was that."""
    shape = bias.meta["val"].shape
    ends = zip(reversed(shape), reversed(size), reversed(gaps), strict=False)
    pads = [pad for n, whole, gap in ends for pad in (0, gap if n == whole else 0)]
    return _call(graph, aten.constant_pad_nd.default, bias, pads) if any(pads) else bias


def _has_pieces(given: list[fx.Node]) -> bool:
    """Whether a product is large enough for several pieces, and its bias the same for each row."""
    *biases, left, right = (node.meta["val"] for node in given)
    return left.shape[0] > rows_of_a_piece(right) and all(bias.dim() < 2 for bias in biases)


def _in_pieces(graph: fx.Graph, node: fx.Node, given: list[fx.Node]) -> fx.Node:
    """The product without gaps, of which there is never more than a piece with them."""
    *biases, left, right = given
    size = (int(n) for n in node.meta["val"].shape)
    return _call(graph, product_in_pieces(), left, right, *(biases or (None,)), *size)


def _without_gaps(graph: fx.Graph, product: fx.Node, node: fx.Node, *, view: bool) -> fx.Node:
    """The rows and columns that are asked for; a view, unless strides have to be those of rows."""
    rows, columns = (int(n) for n in node.meta["val"].shape)
    found = product
    if product.meta["val"].shape[0] != rows:
        found = _call(graph, aten.slice.Tensor, found, 0, 0, rows)
    if product.meta["val"].shape[1] == columns:
        return found
    found = _call(graph, aten.slice.Tensor, found, 1, 0, columns)
    return found if view else _call(graph, aten.clone.default, found)


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
