"""Loads that are contiguous in memory across the innermost loop, read through a transposed tile.

Each costs a cache line an element. So the loops run over blocks, and what such a load reads of a
block is first copied to a small array in which it lies along the innermost loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.expr import Expr, Guarded, Indirect, Load, rewrite
from tcdebug.compiler.ir.index import Atom, Axis, Index, to_index

ROWS = 16
"""Points of a block along the axis in which the loads are contiguous: a cache line of floats."""
COLUMNS = 64
"""Points of a block along the innermost axis; `load_tile` in the prelude has the same."""
FEW = 8
"""An axis of fewer points is not worth a block."""


@dataclass(frozen=True)
class TransposedTile:
    """The array that stands for a load: what it is copied from, and the stride there."""

    name: str
    dtype: torch.dtype
    buffer: str
    address: Index
    stride: Index


@dataclass(frozen=True)
class Tiling:
    """A kernel in blocks: `across` is the axis along which the tiles are contiguous in memory."""

    kernel: FlatKernel
    """The kernel with the loads taken from the tiles."""
    across: Axis
    tiles: tuple[TransposedTile, ...]


def block_start(axis: Axis) -> Axis:
    """The variable that says where the block along an axis begins."""
    return Axis(f"{axis.name}_low", axis.size)


def tiling(kernel: FlatKernel) -> Tiling | None:
    """The kernel in blocks, None where every load runs along the innermost loop or not at all."""
    if kernel.accumulates or not kernel.outer or not kernel.inner:
        return None
    inner = kernel.inner[0]
    against = {axis: _against(kernel, axis, inner) for axis in kernel.outer}
    across = max(against, key=lambda axis: len(against[axis]))
    if not against[across] or any(_is_short(axis) for axis in (across, inner)):
        return None
    row, column = (to_index(a) - to_index(block_start(a)) for a in (across, inner))
    starts: dict[Atom, Index] = {a: to_index(block_start(a)) for a in (across, inner)}
    instead: dict[str, Expr] = {}
    tiles: list[TransposedTile] = []
    for load in against[across]:
        (address,) = load.index
        stride = address.coefficient(inner)
        assert stride is not None
        name = f"tile_{len(tiles)}"
        tiles.append(
            TransposedTile(name, load.dtype, load.buffer, address.substitute(starts), stride)
        )
        instead[load.key] = Load(load.dtype, name, (row * COLUMNS + column,))
    nodes = tuple(
        replace(n, body=rewrite(n.body, lambda e: instead.get(e.key, e))) for n in kernel.nodes
    )
    return Tiling(replace(kernel, nodes=nodes), across, tuple(tiles))


def _against(kernel: FlatKernel, axis: Axis, inner: Axis) -> list[Load]:
    """The loads that are contiguous along an outer axis, and strided along the innermost."""
    found: dict[str, Load] = {}
    for node in kernel.nodes:
        for load in _always_read(node.body):
            if load.index and not any(isinstance(a, Indirect) for a in load.index[0].atoms):
                stride = load.index[0].coefficient(inner)
                if load.index[0].coefficient(axis) == 1 and stride not in (None, 0, 1):
                    found[load.key] = load
    return list(found.values())


def _always_read(body: Expr) -> Iterator[Load]:
    """The loads that every point makes: what a guard protects may be out of bounds."""
    stack = [body]
    seen: set[str] = set()
    while stack:
        node = stack.pop()
        if node.key in seen:
            continue
        seen.add(node.key)
        if isinstance(node, Load):
            yield node
        stack += (node.condition,) if isinstance(node, Guarded) else node.operands


def _is_short(axis: Axis) -> bool:
    size = axis.size.constant
    return size is not None and size < FEW
