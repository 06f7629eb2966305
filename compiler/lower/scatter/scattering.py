"""Lowerings of operators that replace elements at indices given by data.

If each element can decide by itself whether it is replaced, the operator is pointwise and can be
fused. Otherwise points run in order: the last of several values for one element wins, and sums are
the same in every run, like eager's with `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import ONE, ZERO, Index, to_index
from tcdebug.compiler.ir.build import all_of, call, cast, compute_dtype, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, IndexValue, Indirect, loads
from tcdebug.compiler.lower.indexing.gathering import as_row
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.scatter.input_updates import elements_are_apart

aten = torch.ops.aten


def _covers(positions: Tensor, x: Tensor, point: Point, at: int) -> list[Expr]:
    """Return the conditions under which `positions` covers a point, ignoring dimension `at`."""
    return [
        call("lt", index_value(point[k]), index_value(size))
        for k, size in enumerate(positions.size)
        if k != at and size != x.size[k]
    ]


def scatter(*, add: bool) -> Lowering:
    """Return a scatter along a dimension.

    It is pointwise if `positions` has size one along the dimension, so that no element is written
    twice.
    """

    def lower(site: Site, x: Tensor, dim: int, positions: Tensor, source: Operand) -> Tensor:
        if not x.size:
            new = source if isinstance(source, Tensor) else number(site, source)
            return scatter_to_scalar(site, x, positions, new, "add" if add else "")
        if not positions.size:
            raise NotLowered("a 0-d index")
        at = normal_dim(dim, len(x.size))
        dtype = site.dtype
        if add and dtype == torch.bool:
            raise NotLowered("sums of bool")

        def replacement(row: Point, old: Expr) -> Expr:
            if not isinstance(source, Tensor):
                new = site.scalar(source, dtype)
            else:
                new = source.at(row, dtype)
            return combined("add", old, new) if add else new

        if positions.size[at] != 1 or site.updates:
            return _along(site, widened(x) if add else x, at, positions, replacement)

        def element(point: Point) -> Expr:
            row = (*point[:at], ZERO, *point[at + 1 :])
            place = Indirect(cast(positions.at(row), torch.int64), x.size[at], checked=True)
            here = call("eq", index_value(point[at]), index_value(to_index(place)))
            old = x.at(point)
            chosen = call("where", here, replacement(row, old), old)
            conditions = _covers(positions, x, point, at)
            return Guarded(dtype, all_of(conditions), chosen, old) if conditions else chosen

        return site.tensor(element)

    return lower


def number(site: Site, value: Operand) -> Tensor:
    """Return a number as a 0-d tensor."""
    element = site.operand(value, site.dtype)
    return Tensor(site.dtype, (), lambda point: element(()))


def scatter_to_scalar(
    site: Site, x: Tensor, positions: Tensor, source: Tensor, name: str
) -> Tensor:
    """Return a 0-d tensor with its element replaced by a value, or combined with it."""
    if any(n != 1 for n in (*positions.size, *source.size)):
        raise NotLowered("several elements for a 0-d tensor")

    def only(tensor: Tensor) -> Expr:
        return tensor.at((ZERO,) * len(tensor.size))

    def element(point: Point) -> Expr:
        old = as_row(x).at((_place(only(positions), ONE),))
        new = cast(only(source), site.dtype)
        return combined(name, old, new) if name else new

    return site.tensor(element)


Replacement = Callable[[Point, Expr], Expr]
"""(point, current element) -> new element."""


def combined(name: str, old: Expr, new: Expr) -> Expr:
    """Return an operation on two values, computed in the dtype of arithmetic on them."""
    wide = compute_dtype(old.dtype)
    return cast(call(name, cast(old, wide), cast(new, wide)), old.dtype)


def widened(x: Tensor) -> Tensor:
    """A tensor in the dtype of arithmetic, so that half-precision sums are rounded only once."""
    wide = compute_dtype(x.dtype)
    return x if wide == x.dtype else Tensor(wide, x.size, lambda point: x.at(point, wide))


def _place(position: Expr, size: Index) -> Index:
    return to_index(Indirect(cast(position, torch.int64), size, checked=True))


def _along(site: Site, x: Tensor, at: int, positions: Tensor, replacement: Replacement) -> Tensor:
    """Return a scatter of the points of `positions`, which give indices along a dimension."""
    return site.scatter(x, positions.size, place_along(x, at, positions), replacement)


def place_along(x: Tensor, at: int, positions: Tensor) -> Callable[[Point], Point]:
    """Return the element of a point of `positions`, which gives its index along one dimension."""

    def place(point: Point) -> Point:
        own = list(point)
        own[at] = _place(positions.at(point), x.size[at])
        return tuple(own)

    return place


def place_of_row(x: Tensor, at: int, positions: Tensor) -> Callable[[Point], Point]:
    """Return the element of a point of a slice. `positions` gives the index of each slice."""

    def place(point: Point) -> Point:
        own = list(point)
        own[at] = _place(positions.at((point[at],)), x.size[at])
        return tuple(own)

    return place


def index_put(
    site: Site,
    x: Tensor,
    positions: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """x with x[positions] replaced by values, or added to."""
    tensors = [p for p in positions if p is not None]
    if any(p.dtype in (torch.bool, torch.uint8) for p in tensors):
        return _masked_put(site, x, positions, values, accumulate)
    if accumulate and site.dtype == torch.bool:
        raise NotLowered("sums of bool")
    given = [k for k, p in enumerate(positions) if p is not None]
    front = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    rows = _broadcast([p.size for p in tensors])
    rest = [n for k, n in enumerate(x.size) if k >= len(positions) or positions[k] is None]

    def place(point: Point) -> Point:
        where = point[front : front + len(rows)]
        left = [*point[:front], *point[front + len(rows) :]]
        own: list[Index] = []
        for k, size in enumerate(x.size):
            position = positions[k] if k < len(positions) else None
            own.append(_place(position.broadcast(where), size) if position else left.pop(0))
        return tuple(own)

    def replacement(point: Point, old: Expr) -> Expr:
        new = values.broadcast(point, site.dtype)
        return combined("add", old, new) if accumulate else new

    points = (*rest[:front], *rows, *rest[front:])
    return site.scatter(widened(x) if accumulate else x, points, place, replacement)


def _masked_put(
    site: Site, x: Tensor, positions: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    """x with elements replaced, or added to, where a mask over its first dimensions holds."""
    mask, *others = positions
    if mask is None or others or mask.dtype != torch.bool or site.dtype == torch.bool:
        raise NotLowered("a mask among indices")
    rest = len(x.size) - len(mask.size)
    if len(values.size) > rest and any(n != 1 for n in values.size[: len(values.size) - rest]):
        raise NotLowered("a mask as an index, with a value for each of its elements")
    own = values.viewed(
        values.size[max(len(values.size) - rest, 0) :],
        lambda point: (ZERO,) * (len(values.size) - len(point)) + point,
    )

    def element(point: Point) -> Expr:
        old = x.at(point)
        new = own.broadcast(point[len(mask.size) :], site.dtype)
        new = combined("add", old, new) if accumulate else new
        return call("where", mask.at(point[: len(mask.size)]), new, old)

    return site.tensor(element)


def _broadcast(sizes: Sequence[tuple[Index, ...]]) -> tuple[Index, ...]:
    """Return the broadcast of sizes that are known to be compatible."""
    rank = max(map(len, sizes))
    padded = [(ONE,) * (rank - len(size)) + size for size in sizes]
    return tuple(next((n for n in column if n != 1), ONE) for column in zip(*padded, strict=True))


def along_rows(*, add: bool) -> Lowering:
    """index_add and index_copy, which update slices along a dimension."""

    def lower(
        site: Site,
        x: Tensor,
        dim: int,
        positions: Tensor,
        source: Tensor,
        *,
        alpha: Operand = 1,
    ) -> Tensor:
        if add and site.dtype == torch.bool:
            raise NotLowered("sums of bool")
        if not x.size:
            scale, dtype = site.scalar(alpha, site.dtype), site.dtype
            scaled = Tensor(
                dtype, source.size, lambda point: combined("mul", source.at(point, dtype), scale)
            )
            return scatter_to_scalar(site, x, positions, scaled, "add" if add else "")
        if not positions.size or not source.size:
            raise NotLowered("a 0-d tensor")
        place = place_of_row(x, normal_dim(dim, len(x.size)), positions)

        def replacement(point: Point, old: Expr) -> Expr:
            new = source.at(point, site.dtype)
            if add and alpha != 1:
                new = combined("mul", new, site.scalar(alpha, site.dtype))
            return combined("add", old, new) if add else new

        return site.scatter(widened(x) if add else x, source.size, place, replacement)

    return lower


def embedding_dense_backward(
    site: Site,
    gradient: Tensor,
    positions: Tensor,
    rows: Operand,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    """Return the sum of the gradients of each row, without the padding row."""
    if scale_grad_by_freq:
        raise NotLowered("gradients scaled by frequency")
    rank, dtype = len(positions.size), compute_dtype(site.dtype)
    zeros = site.tensor(lambda point: constant(dtype, 0), dtype)

    def position(point: Point) -> Expr:
        return cast(positions.at(point[:rank]), torch.int64)

    def replacement(point: Point, old: Expr) -> Expr:
        added = combined("add", old, gradient.at(point, dtype))
        padding = call("eq", position(point), constant(torch.int64, padding_idx))
        return call("where", padding, old, added) if padding_idx >= 0 else added

    def place(point: Point) -> Point:
        return (_place(position(point), site.size[0]), point[-1])

    return site.scatter(zeros, gradient.size, place, replacement)


SUMS = frozenset(
    (
        aten.scatter_add_.default, aten.scatter_reduce_.two, aten.index_add_.default,
        aten.index_put_.default,
    )
)  # fmt: skip


def in_place(lowering: Lowering) -> Lowering:
    """Return the in-place form of an operator.

    Its first operand must be a whole input of the graph.
    """

    def lower(site: Site, x: Tensor, *args: Operand, **kwargs: Operand) -> Tensor:
        if x.buffer not in site.memory.inputs:
            raise NotLowered("not into an input of the graph")
        if not elements_are_apart(x.size, site.memory.inputs[x.buffer].stride):
            raise NotLowered("elements of the input may share memory")
        if compute_dtype(x.dtype) != x.dtype and site.node.target in SUMS:
            raise NotLowered(f"sums in memory of type {x.dtype}")
        result: Tensor = lowering(site, x, *args, **kwargs)
        if len(site.emitted) != 1 or site.result().device.type != "cpu":
            raise NotLowered("the update is not a single loop")
        (node,) = site.emitted
        reads = (e for i in (IndexValue(torch.int64, k) for k in node.index) for e in loads(i))
        own = [e for e in loads(node.body) if e.buffer != x.buffer or e.index != node.index]
        for load in (*reads, *own):
            if site.memory.owner.get(load.buffer, load.buffer) == x.buffer:
                raise NotLowered("the input is read at other places than it is written")
        return result

    return lower


def diagonal_scatter(
    site: Site, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with a diagonal of two dimensions replaced."""
    a, b = normal_dim(dim1, len(x.size)), normal_dim(dim2, len(x.size))
    below, right = max(-offset, 0), max(offset, 0)
    dtype = site.dtype

    def element(point: Point) -> Expr:
        along: Index = point[a] - below
        here = call("eq", index_value(along), index_value(point[b] - right))
        rest = [p for k, p in enumerate(point) if k not in (a, b)]
        return Guarded(dtype, here, source.at((*rest, along), dtype), x.at(point))

    return site.tensor(element)


TABLE: dict[torch._ops.OpOverload, Lowering] = {
    aten.scatter.value: scatter(add=False),
    aten.scatter.src: scatter(add=False),
    aten.scatter_add.default: scatter(add=True),
    aten.index_put.default: index_put,
    aten._unsafe_index_put.default: index_put,
    aten.index_add.default: along_rows(add=True),
    aten.index_copy.default: along_rows(add=False),
    aten.embedding_dense_backward.default: embedding_dense_backward,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.scatter_.value: in_place(scatter(add=False)),
    aten.scatter_.src: in_place(scatter(add=False)),
    aten.scatter_add_.default: in_place(scatter(add=True)),
    aten.index_put_.default: in_place(index_put),
    aten.index_add_.default: in_place(along_rows(add=True)),
    aten.index_copy_.default: in_place(along_rows(add=False)),
}
