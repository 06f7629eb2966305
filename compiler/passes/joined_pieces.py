"""Removes joins that are taken apart again, and splits that are joined again.

Matches a slice of a cat, or a result of a split of it, that is exactly one operand; and a cat of
all pieces of a tensor, in order. Sizes along the dimension must be known. Guarantees equal values;
the replacement is row-major, so it allows every view that the original allows. Applies neither to
results of the graph nor to values that `as_strided` reads.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.passes.replacement import escaping, same_numbers

aten = torch.ops.aten

SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)


def joined_pieces(graph: fx.Graph) -> bool:
    """Replace a slice of a cat by the operand in it, and a cat of all pieces by their source."""
    kept = escaping(graph)
    changed = False
    for node in list(graph.nodes):
        if node in kept:
            continue
        source = _piece(node) or _whole(node)
        if source is None or not _stands_for(source, node):
            continue
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        changed = True
    return changed


def _stands_for(source: fx.Node, node: fx.Node) -> bool:
    """Return whether every use of a node can use the source instead.

    A contiguous tensor allows every view that a non-contiguous one allows. Only operators that
    depend on strides, or that write, distinguish the two.
    """
    x, y = source.meta.get("val"), node.meta.get("val")
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return False
    if any(user.target is aten.as_strided.default for user in node.users):
        return False
    return x.dtype == y.dtype and same_numbers(x.shape, y.shape) and _is_plain(x)


def _is_plain(value: torch.Tensor) -> bool:
    """Return whether a tensor is row-major. Compares sizes as text, without adding guards."""
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        return False
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if str(stride) != str(expected):
            return False
        expected = expected * size
    return True


def _joined(node: Any) -> tuple[list[fx.Node], int, list[int]] | None:
    """Return the operands of a cat, its dimension, and their offsets.

    None if a size is symbolic.
    """
    if not isinstance(node, fx.Node) or node.target is not aten.cat.default:
        return None
    parts: Any = node.args[0]
    rank = node.meta["val"].dim()
    dim = int(node.args[1]) % rank if len(node.args) > 1 else 0  # type: ignore[arg-type] # a number
    starts, end = [], 0
    for part in parts:
        value = part.meta["val"]
        if value.dim() != rank or not isinstance(value.shape[dim], int):
            return None
        starts.append(end)
        end += value.shape[dim]
    return list(parts), dim, [*starts, end]


def _piece(node: fx.Node) -> fx.Node | None:
    """Return the operand of a cat that a slice, or a result of a split, extracts exactly."""
    taken = _sliced(node) if node.target is aten.slice.Tensor else _split_off(node)
    found = _joined(taken[0]) if taken else None
    if taken is None or found is None:
        return None
    parts, dim, bounds = found
    _, along, first, last = taken
    for part, start, end in zip(parts, bounds, bounds[1:], strict=False):
        if (along, first, last) == (dim, start, end) and start != end:
            return part
    return None


def _sliced(node: fx.Node) -> tuple[Any, int, int, int] | None:
    """The source, dimension, start and end of a slice with step 1; None if a bound is symbolic."""
    given: list[Any] = [*node.args, None, None, None, None]
    source, dim, start, end, step = given[:5]
    value = source.meta.get("val") if isinstance(source, fx.Node) else None
    if not isinstance(value, torch.Tensor) or step not in (None, 1):
        return None
    along = int(dim or 0) % value.dim()
    size = value.shape[along]
    first, last = start or 0, size if end is None else end
    if not all(isinstance(n, int) for n in (size, first, last)):
        return None
    low, high, _ = slice(first, last).indices(size)
    return source, along, low, high


def _split_off(node: fx.Node) -> tuple[Any, int, int, int] | None:
    """Return the source, dimension, start and end of one result of a split."""
    split = node.args[0] if node.target is operator.getitem else None
    if not isinstance(split, fx.Node) or split.target not in SPLITS:
        return None
    source, dim, position = split.args[0], split.args[2:] or (0,), node.args[1]
    results = split.meta["val"]
    along = int(dim[0]) % results[0].dim()  # type: ignore[arg-type] # a number
    lengths = [r.shape[along] for r in results]
    if not all(isinstance(n, int) for n in lengths):
        return None
    first = sum(lengths[: int(position)])  # type: ignore[arg-type] # a number
    return source, along, first, first + lengths[int(position)]  # type: ignore[arg-type] # a number


def _whole(node: fx.Node) -> fx.Node | None:
    """Return the tensor of which a cat joins all pieces in order."""
    found = _joined(node)
    if found is None:
        return None
    parts, dim, bounds = found
    pieces = [_sliced(p) if p.target is aten.slice.Tensor else _split_off(p) for p in parts]
    source = pieces[0][0] if pieces[0] else None
    for piece, start, end in zip(pieces, bounds, bounds[1:], strict=False):
        if piece != (source, dim, start, end):
            return None
    return source if isinstance(source, fx.Node) else None
