"""Lowerings of operators that replace elements at places given by data.

Where each element can tell for itself whether it is replaced, it does, and fuses with what reads
it. Else points are taken in order: of several for one element the last counts, and sums are the
same in every run, as eager's are under `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tcdebug.compiler.ir.build import all_of, call, cast, compute_dtype, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Guarded, IndexValue, Indirect, loads
from tcdebug.compiler.ir.index import ONE, ZERO, Index, to_index
from tcdebug.compiler.lower.indexing.gathering import as_row
from tcdebug.compiler.lower.indexing.views import normal_dim
from tcdebug.compiler.lower.interface.site import Lowering, Operand, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor
from tcdebug.compiler.lower.scatter.input_updates import elements_are_apart

aten = torch.ops.aten


def _covers(positions: Tensor, x: Tensor, point: Point, at: int) -> list[Expr]:
    """The conditions under which there is a position for a point, dimension `at` aside."""
    return [
        call("lt", index_value(point[k]), index_value(size))
        for k, size in enumerate(positions.size)
        if k != at and size != x.size[k]
    ]


def scatter(*, add: bool) -> Lowering:
    """scatter along a dimension.

    Where there is one position for each row of the rest, no element is written twice.
    """

    def lower(site: Site, x: Tensor, dim: int, positions: Tensor, source: Operand) -> Tensor:
        if not x.size:
            new = source if isinstance(source, Tensor) else number(site, source)
            return of_one(site, x, positions, new, "add" if add else "")
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
            return _along(site, wide(x) if add else x, at, positions, replacement)

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
    """A number as a 0-d tensor."""
    element = site.operand(value, site.dtype)
    return Tensor(site.dtype, (), lambda point: element(()))


def of_one(site: Site, x: Tensor, positions: Tensor, source: Tensor, name: str) -> Tensor:
    """A 0-d tensor with its element replaced, or combined with one other."""
    if any(n != 1 for n in (*positions.size, *source.size)):
        raise NotLowered("several places in a 0-d tensor")

    def only(tensor: Tensor) -> Expr:
        return tensor.at((ZERO,) * len(tensor.size))

    def element(point: Point) -> Expr:
        old = as_row(x).at((_place(only(positions), ONE),))
        new = cast(only(source), site.dtype)
        return combined(name, old, new) if name else new

    return site.tensor(element)


Replacement = Callable[[Point, Expr], Expr]
"""(point, what the element is so far) -> what it becomes."""


def combined(name: str, old: Expr, new: Expr) -> Expr:
    """Two values by an operation, computed in the dtype for it."""
    wide = compute_dtype(old.dtype)
    return cast(call(name, cast(old, wide), cast(new, wide)), old.dtype)


def wide(x: Tensor) -> Tensor:
    """What sums are gathered in: half types are rounded once, at the end."""
    wide = compute_dtype(x.dtype)
    return x if wide == x.dtype else Tensor(wide, x.size, lambda point: x.at(point, wide))


def _place(position: Expr, size: Index) -> Index:
    return to_index(Indirect(cast(position, torch.int64), size, checked=True))


def _along(site: Site, x: Tensor, at: int, positions: Tensor, replacement: Replacement) -> Tensor:
    """Points of `positions`, each at the place along a dimension that it names."""
    return site.scatter(x, positions.size, place_along(x, at, positions), replacement)


def place_along(x: Tensor, at: int, positions: Tensor) -> Callable[[Point], Point]:
    """The place of a point of `positions`, which names it along one dimension."""

    def place(point: Point) -> Point:
        own = list(point)
        own[at] = _place(positions.at(point), x.size[at])
        return tuple(own)

    return place


def place_of_row(x: Tensor, at: int, positions: Tensor) -> Callable[[Point], Point]:
    """The place of a point of slices, of which `positions` names each."""

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
    return site.scatter(wide(x) if accumulate else x, points, place, replacement)


def _masked_put(
    site: Site, x: Tensor, positions: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    """x where a mask of its first dimensions does not hold, elsewhere values for all of them."""
    mask, *others = positions
    if mask is None or others or mask.dtype != torch.bool or site.dtype == torch.bool:
        raise NotLowered("a mask among indices")
    rest = len(x.size) - len(mask.size)
    if len(values.size) > rest and any(n != 1 for n in values.size[: len(values.size) - rest]):
        raise NotLowered("a mask as an index, and a value for each of its places")
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
    """The size to which sizes that were checked broadcast."""
    rank = max(map(len, sizes))
    padded = [(ONE,) * (rank - len(size)) + size for size in sizes]
    return tuple(next((n for n in column if n != 1), ONE) for column in zip(*padded, strict=True))


def along_rows(*, add: bool) -> Lowering:
    """index_add and index_copy: slices along a dimension."""

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
            return of_one(site, x, positions, scaled, "add" if add else "")
        if not positions.size or not source.size:
            raise NotLowered("a 0-d tensor")
        place = place_of_row(x, normal_dim(dim, len(x.size)), positions)

        def replacement(point: Point, old: Expr) -> Expr:
            new = source.at(point, site.dtype)
            if add and alpha != 1:
                new = combined("mul", new, site.scalar(alpha, site.dtype))
            return combined("add", old, new) if add else new

        return site.scatter(wide(x) if add else x, source.size, place, replacement)

    return lower


def embedding_dense_backward(
    site: Site,
    gradient: Tensor,
    positions: Tensor,
    rows: Operand,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    """The sum of the gradients of each row, that of padding left out."""
    if scale_grad_by_freq:
        raise NotLowered("gradients by frequency")
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
    """The form of an operator that updates its first operand, which has to be a whole input."""

    def lower(site: Site, x: Tensor, *args: Operand, **kwargs: Operand) -> Tensor:
        if x.buffer not in site.memory.inputs:
            raise NotLowered("not into an input of the graph")
        if not elements_are_apart(x.size, site.memory.inputs[x.buffer].stride):
            raise NotLowered("elements of the input may share memory")
        if compute_dtype(x.dtype) != x.dtype and site.node.target in SUMS:
            raise NotLowered(f"sums of {x.dtype} in memory of that type")
        result: Tensor = lowering(site, x, *args, **kwargs)
        if len(site.emitted) != 1 or site.result().device.type != "cpu":
            raise NotLowered("not one loop over the places")
        (node,) = site.emitted
        reads = (e for i in (IndexValue(torch.int64, k) for k in node.index) for e in loads(i))
        own = [e for e in loads(node.body) if e.buffer != x.buffer or e.index != node.index]
        for load in (*reads, *own):
            if site.memory.owner.get(load.buffer, load.buffer) == x.buffer:
                raise NotLowered("the input is read elsewhere than it is written")
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
