"""Lowerings of views, which only change indices.

Each function maps a point of the result to a point of its operand. Loads go directly to the base.
The views in `STRIDED` also become extern calls, for nodes that need them as tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tcdebug.compiler.ir.arithmetic.index import (
    ZERO,
    Index,
    is_nonnegative,
    product,
    to_index,
)
from tcdebug.compiler.lower.interface.site import Lowering, Site
from tcdebug.compiler.lower.interface.tensor import NotLowered, Point, Tensor

aten = torch.ops.aten

Size = Index | int


def normal_dim(dim: int, rank: int) -> int:
    """Return a non-negative dimension. For a 0-d tensor it is 0."""
    return dim % rank if rank else 0


def same(site: Site, x: Tensor) -> Tensor:
    """Return the tensor itself, for alias and detach."""
    return x.viewed(x.size, lambda p: p)


def permute(site: Site, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Dimension k of the result is dims[k] of x."""
    order = [normal_dim(d, len(x.size)) for d in dims]

    def index(point: Point) -> Point:
        old = [ZERO] * len(order)
        for k, d in enumerate(order):
            old[d] = point[k]
        return tuple(old)

    return x.viewed([x.size[d] for d in order], index)


def transpose(site: Site, x: Tensor, first: int, second: int) -> Tensor:
    """Two dimensions swapped."""
    order = list(range(len(x.size)))
    if not order:
        return same(site, x)
    a, b = normal_dim(first, len(order)), normal_dim(second, len(order))
    order[a], order[b] = order[b], order[a]
    return permute(site, x, order)


def t(site: Site, x: Tensor) -> Tensor:
    """Return a transposed matrix; other tensors unchanged."""
    return transpose(site, x, 0, 1) if len(x.size) == 2 else same(site, x)


def expand(site: Site, x: Tensor, size: object, *, implicit: bool = False) -> Tensor:
    """Return a tensor whose dimensions of size one are repeated."""
    new = site.size
    skip = len(new) - len(x.size)

    def index(point: Point) -> Point:
        return tuple(ZERO if s == 1 else i for s, i in zip(x.size, point[skip:], strict=True))

    return x.viewed(new, index)


def squeeze_dims(site: Site, x: Tensor, dims: Sequence[int] | int) -> Tensor:
    """Return a tensor without those of the given dimensions that have size one."""
    wanted = [dims] if isinstance(dims, int) else list(dims)
    gone = {normal_dim(d, len(x.size)) for d in wanted}
    kept = [k for k, s in enumerate(x.size) if k not in gone or s != 1]

    def index(point: Point) -> Point:
        old = [ZERO] * len(x.size)
        for k, i in zip(kept, point, strict=True):
            old[k] = i
        return tuple(old)

    return x.viewed([x.size[k] for k in kept], index)


def squeeze_all(site: Site, x: Tensor) -> Tensor:
    """Return a tensor without its dimensions of size one."""
    return squeeze_dims(site, x, list(range(len(x.size))))


def unsqueeze(site: Site, x: Tensor, dim: int) -> Tensor:
    """Return a tensor with a new dimension of size one."""
    at = normal_dim(dim, len(x.size) + 1)
    new = [*x.size[:at], to_index(1), *x.size[at:]]
    return x.viewed(new, lambda p: (*p[:at], *p[at + 1 :]))


def select(site: Site, x: Tensor, dim: int, position: Size) -> Tensor:
    """Return one slice along a dimension, without the dimension."""
    at = normal_dim(dim, len(x.size))
    where = from_end(position, x.size[at])
    new = [*x.size[:at], *x.size[at + 1 :]]
    return x.viewed(new, lambda p: (*p[:at], where, *p[at:]))


def from_end(position: Size, size: Index) -> Index:
    """Return a non-negative position.

    A negative one counts from the end. Raises NotLowered if unknown.
    """
    index = to_index(position)
    if is_nonnegative(index):
        return index
    if is_nonnegative(-index - 1):
        return index + size
    raise NotLowered(f"the sign of position {index} is not known")


def slice_start(start: Size | None, size: Index) -> Index:
    """Return the first position of a slice, clamped to the dimension.

    Raises NotLowered if unknown.
    """
    if start is None:
        return ZERO
    first = from_end(start, size)
    if first.constant is not None and size.constant is not None:
        return to_index(min(max(first.constant, 0), size.constant))
    if is_nonnegative(first):
        return first
    raise NotLowered(f"a slice from {first} of {size}")


def slice_(
    site: Site,
    x: Tensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Tensor:
    """Return every step-th element from start on. The size of the result determines the end."""
    at = normal_dim(dim, len(x.size))
    first = slice_start(start, x.size[at])
    return x.viewed(site.size, lambda p: (*p[:at], first + p[at] * to_index(step), *p[at + 1 :]))


def view(site: Site, x: Tensor, size: object) -> Tensor:
    """Return a tensor with another size and the same elements in row-major order."""
    return reshaped(x, site.size)


def reshaped(x: Tensor, new: Sequence[Index]) -> Tensor:
    """x with a new size that has the same number of elements, in row-major order."""
    pairs = _matching_blocks(list(x.size), list(new))

    def index(point: Point) -> Point:
        old: list[Index] = []
        at = 0
        for old_sizes, new_sizes in pairs:
            flat = _flatten(point[at : at + len(new_sizes)], new_sizes)
            at += len(new_sizes)
            old += _unflatten(flat, old_sizes)
        return tuple(old)

    return x.viewed(new, index)


def _matching_blocks(old: list[Index], new: list[Index]) -> list[tuple[list[Index], list[Index]]]:
    """Split two sizes into the smallest blocks with equal products."""
    blocks: list[tuple[list[Index], list[Index]]] = []
    o = n = 0
    while o < len(old) and n < len(new):
        left, right = [old[o]], [new[n]]
        o, n = o + 1, n + 1
        while product(left) != product(right):
            if o < len(old) and (n >= len(new) or _smaller(product(left), product(right))):
                left.append(old[o])
                o += 1
            elif n < len(new):
                right.append(new[n])
                n += 1
            else:
                break
        blocks.append((left, right))
    if o < len(old) or n < len(new):  # dimensions of size one
        blocks.append((old[o:], new[n:]))
    return blocks


def _smaller(a: Index, b: Index) -> bool:
    if a.constant is not None and b.constant is not None:
        return a.constant < b.constant
    return is_nonnegative(b - a)


def _flatten(point: Sequence[Index], sizes: Sequence[Index]) -> Index:
    flat = ZERO
    for i, size in zip(point, sizes, strict=True):
        flat = flat * size + (ZERO if size == 1 else i)
    return flat


def _unflatten(flat: Index, sizes: Sequence[Index]) -> list[Index]:
    point: list[Index] = []
    for position in range(len(sizes)):
        inner = product(sizes[position + 1 :])
        value = flat // inner if inner != 1 else flat
        # the first index needs no remainder, because the point is in range
        point.append(value if not position else value % sizes[position])
    return [ZERO if s == 1 else i for i, s in zip(point, sizes, strict=True)]


def unfold(site: Site, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows along a dimension, as a new last dimension."""
    if not x.size:
        return x.viewed(site.size, lambda p: ())
    at = normal_dim(dim, len(x.size))
    return x.viewed(site.size, lambda p: (*p[:at], p[at] * to_index(step) + p[-1], *p[at + 1 : -1]))


def diagonal(site: Site, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a diagonal of two dimensions, as the last dimension."""
    a, b = normal_dim(dim1, len(x.size)), normal_dim(dim2, len(x.size))
    below, right = max(-offset, 0), max(offset, 0)

    def index(point: Point) -> Point:
        rest = list(point[:-1])
        return tuple(
            point[-1] + below if k == a else point[-1] + right if k == b else rest.pop(0)
            for k in range(len(x.size))
        )

    return x.viewed(site.size, index)


def pieces(site: Site, x: Tensor, starts: Sequence[Index], dim: int) -> tuple[Tensor, ...]:
    """Slices of a dimension, one for each result of the node."""
    at = normal_dim(dim, len(x.size))
    results = site.node.meta["val"]
    made: list[Tensor] = []
    for position, start in enumerate(starts):
        size = site.sizes.indices(results[position].shape)
        made.append(
            x.viewed(size, lambda p, s=start: (*p[:at], p[at] + s, *p[at + 1 :]))  # type: ignore[misc] # the default binds the loop variable
        )
    return tuple(made)


def split(site: Site, x: Tensor, length: Size, dim: int = 0) -> tuple[Tensor, ...]:
    """Slices of equal length, of which the last may be shorter."""
    count = len(site.node.meta["val"])
    return pieces(site, x, [to_index(length) * k for k in range(count)], dim)


def split_with_sizes(
    site: Site, x: Tensor, lengths: Sequence[Size], dim: int = 0
) -> tuple[Tensor, ...]:
    """Slices of given lengths."""
    starts = [ZERO]
    for length in lengths[:-1]:
        starts.append(starts[-1] + to_index(length))
    return pieces(site, x, starts, dim)


def unbind(site: Site, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return all slices along a dimension, without the dimension."""
    return tuple(select(site, x, dim, k) for k in range(len(site.node.meta["val"])))


STRIDED: dict[torch._ops.OpOverload, Lowering] = {
    aten.alias.default: same,
    aten.detach.default: same,
    aten.permute.default: permute,
    aten.transpose.int: transpose,
    aten.t.default: t,
    aten.expand.default: expand,
    aten.squeeze.default: squeeze_all,
    aten.squeeze.dim: squeeze_dims,
    aten.squeeze.dims: squeeze_dims,
    aten.unsqueeze.default: unsqueeze,
    aten.select.int: select,
    aten.slice.Tensor: slice_,
    aten.view.default: view,
    aten._unsafe_view.default: view,
    aten.unfold.default: unfold,
    aten.diagonal.default: diagonal,
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split_with_sizes,
    aten.unbind.int: unbind,
}
