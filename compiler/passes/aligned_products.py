"""Pads matrix products on a GPU so that tensor cores load aligned rows.

Matches mm and addmm in bfloat16 or float16 of known sizes, if they are large
(`FEWEST_MULTIPLICATIONS`, `FEWEST_USES`) and a contiguous dimension is not a multiple of `ALIGNED`.
For such sizes, for example a vocabulary of 50257, cuBLAS must use slow kernels. A row stride that
is a multiple of 16 bytes does not suffice if the size is that of the contracted dimension.

Operands are copied with zeros appended. The additional rows of the result are not read. Its
additional columns are removed by a copy where the layout matters; a large result is computed and
copied in pieces. Guarantees the same sums, though cuBLAS may add in another order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.ir.operations import HALVES
from tcdebug.compiler.operators.product_in_pieces import product_in_pieces, rows_of_a_piece
from tcdebug.compiler.passes.replacement import strided_as_eager
from tcdebug.compiler.passes.strides import restride
from tcdebug.compiler.passes.unfused_bias import on_gpu, read_by_loops

aten = torch.ops.aten

ALIGNED = 8
"""Elements of a half-precision type in 16 bytes, the unit in which tensor cores load."""
FEWEST_MULTIPLICATIONS = 1 << 30
"""The number of multiplications from which copying an operand pays."""
FEWEST_USES = 256
"""Copying also requires that each element is used at least this often."""
PRODUCTS = (aten.mm.default, aten.addmm.default)
TRANSPOSES = (aten.t.default, aten.permute.default, aten.transpose.int)

Padding = tuple[int, int, int]
"""Zeros to append to the rows, the contracted dimension, and the columns of a product."""


def aligned_products(graph: fx.Graph) -> bool:
    """Pad large half-precision matrix products on a GPU to sizes that are multiples of 8."""
    kept = strided_as_eager(graph)
    padded: dict[tuple[fx.Node, int, int], fx.Node] = {}
    changed = False
    for node in list(graph.nodes):
        if node.target not in PRODUCTS or node.kwargs or not on_gpu(node) or not _large(node):
            continue
        padding = _padding(node)
        if padding is None or not any(padding):
            continue
        changed = True
        view = node not in kept and read_by_loops(node)
        with graph.inserting_before(node):
            target, operands = node.target, _padded_operands(graph, node, padding, padded)
            if padding[2] and not view and _has_pieces(operands):
                result = _in_pieces(graph, node, operands)
            else:
                result = _unpadded(graph, _call(graph, target, *operands), node, view=view)
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
    """Return whether the product is large enough to outweigh copies of its operands and result."""
    left, right = (operand.meta["val"] for operand in _operands(node))
    numbers = (*left.shape, right.shape[1])
    if left.dtype not in HALVES or not all(isinstance(n, int) for n in numbers):
        return False
    sizes = [int(n) for n in numbers]
    return math.prod(sizes) >= FEWEST_MULTIPLICATIONS and min(sizes) >= FEWEST_USES


def _is_transposed(operand: fx.Node) -> bool | None:
    """Return whether a matrix is column-major.

    None if neither its rows nor its columns are contiguous.
    """
    value = operand.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() != 2:
        return None
    return None if 1 not in value.stride() else value.stride(1) != 1


def _padding(node: fx.Node) -> Padding | None:
    """Return the zeros to append. None if an operand has neither contiguous rows nor columns.

    A dimension needs padding only if it is the contiguous dimension of an operand or the result.
    """
    left, right = _operands(node)
    left_transposed, right_transposed = _is_transposed(left), _is_transposed(right)
    if left_transposed is None or right_transposed is None:
        return None
    rows, depth = (int(n) for n in left.meta["val"].shape)
    columns = int(right.meta["val"].shape[1])
    return (
        _missing(rows) if left_transposed else 0,
        0 if left_transposed and not right_transposed else _missing(depth),
        _missing(columns),
    )


def _padded_operands(
    graph: fx.Graph,
    node: fx.Node,
    padding: Padding,
    padded: dict[tuple[fx.Node, int, int], fx.Node],
) -> list[fx.Node]:
    """Return the bias, if any, and the operands of a product, padded with zeros."""
    rows, depth, columns = padding
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
    if _is_transposed(operand):
        source = operand.args[0] if operand.target in TRANSPOSES else None
        if not isinstance(source, fx.Node) or _is_transposed(source) is not False:
            source = _call(graph, aten.t.default, operand)
        rows_of_source = _padded_operand(graph, source, columns, rows, padded)
        return _call(graph, aten.t.default, rows_of_source)
    key = (operand, rows, columns)
    if key not in padded:
        padded[key] = _call(graph, aten.constant_pad_nd.default, operand, [0, columns, 0, rows])
    return padded[key]


def _padded_bias(
    graph: fx.Graph, bias: fx.Node, size: list[int], padding: tuple[int, int]
) -> fx.Node:
    """Return a bias, padded in each dimension in which it is not broadcast."""
    shape = bias.meta["val"].shape
    ends = zip(reversed(shape), reversed(size), reversed(padding), strict=False)
    pads = [pad for n, whole, more in ends for pad in (0, more if n == whole else 0)]
    return _call(graph, aten.constant_pad_nd.default, bias, pads) if any(pads) else bias


def _has_pieces(operands: list[fx.Node]) -> bool:
    """Return whether a product has several pieces, and its bias is the same for each row."""
    *biases, left, right = (node.meta["val"] for node in operands)
    return left.shape[0] > rows_of_a_piece(right) and all(bias.dim() < 2 for bias in biases)


def _in_pieces(graph: fx.Graph, node: fx.Node, operands: list[fx.Node]) -> fx.Node:
    """The product without padding, computed so that only one padded piece exists at a time."""
    *biases, left, right = operands
    size = (int(n) for n in node.meta["val"].shape)
    return _call(graph, product_in_pieces(), left, right, *(biases or (None,)), *size)


def _unpadded(graph: fx.Graph, product: fx.Node, node: fx.Node, *, view: bool) -> fx.Node:
    """Return the result without its padding. A view if `view`, otherwise a contiguous copy."""
    rows, columns = (int(n) for n in node.meta["val"].shape)
    found = product
    if product.meta["val"].shape[0] != rows:
        found = _call(graph, aten.slice.Tensor, found, 0, 0, rows)
    if product.meta["val"].shape[1] == columns:
        return found
    found = _call(graph, aten.slice.Tensor, found, 1, 0, columns)
    return found if view else _call(graph, aten.clone.default, found)


def _missing(size: int) -> int:
    return -size % ALIGNED


def _call(graph: fx.Graph, target: Any, *args: Any) -> fx.Node:
    """Return a new call with its fake result."""
    node = graph.call_function(target, args)
    values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
    node.meta["val"] = target(*values)
    source = next(a for a in args if isinstance(a, fx.Node))
    if trace := source.meta.get("stack_trace"):
        node.meta["stack_trace"] = trace
    return node
