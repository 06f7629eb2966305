"""Transposes loads that are contiguous along an outer axis and strided along the innermost loop.

Such a load touches one cache line per element. Therefore the loops run over blocks, and the
elements of a block are first copied to a small array that is contiguous along the innermost loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.codegen.cpp.text import index_text, loop
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.expr import Expr, Guarded, Indirect, Load, rewrite
from tcdebug.compiler.ir.index import Atom, Axis, Index, to_index

ROWS = 16
"""Points of a block along the contiguous axis of the loads: a cache line of floats."""
COLUMNS = 64
"""Points of a block along the innermost axis. `load_tile` in the prelude uses the same number."""
FEW = 8
"""Axes with fewer points are not divided into blocks."""


@dataclass(frozen=True)
class TransposedTile:
    """The array that replaces a load: the memory it is copied from, and the stride there."""

    name: str
    dtype: torch.dtype
    buffer: str
    address: Index
    stride: Index


@dataclass(frozen=True)
class Tiling:
    """A kernel in blocks. `across` is the axis along which the loads are contiguous in memory."""

    kernel: FlatKernel
    """The kernel with its strided loads replaced by loads from tiles."""
    across: Axis
    tiles: tuple[TransposedTile, ...]


def block_start(axis: Axis) -> Axis:
    """The variable for the start of the current block along an axis."""
    return Axis(f"{axis.name}_low", axis.size)


@dataclass(frozen=True)
class BlockedAxis:
    """The C++ variables of an axis that is divided into blocks."""

    axis: Axis
    step: int

    @property
    def low(self) -> str:
        return block_start(self.axis).name

    @property
    def high(self) -> str:
        return f"{self.axis.name}_high"

    @property
    def end(self) -> str:
        return f"index_min({self.low} + {self.step}, {index_text(self.axis.size)})"

    @property
    def loop(self) -> str:
        """The loop over all blocks."""
        return loop(block_start(self.axis), "0", index_text(self.axis.size), self.step)


def tiling(kernel: FlatKernel) -> Tiling | None:
    """The kernel in blocks; None if no load needs to be transposed."""
    if kernel.accumulates or not kernel.outer or not kernel.inner:
        return None
    inner = kernel.inner[0]
    candidates = {axis: _contiguous_across(kernel, axis, inner) for axis in kernel.outer}
    across = max(candidates, key=lambda axis: len(candidates[axis]))
    if not candidates[across] or any(_is_short(axis) for axis in (across, inner)):
        return None
    row, column = (to_index(a) - to_index(block_start(a)) for a in (across, inner))
    starts: dict[Atom, Index] = {a: to_index(block_start(a)) for a in (across, inner)}
    instead: dict[str, Expr] = {}
    tiles: list[TransposedTile] = []
    for load in candidates[across]:
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


def _contiguous_across(kernel: FlatKernel, axis: Axis, inner: Axis) -> list[Load]:
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
    """The loads that every point makes. Guarded loads may be out of bounds."""
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
