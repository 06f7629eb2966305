"""The tiles of Triton programs, into which the loops of a kernel are divided.

A pointwise kernel has the dimensions `x` and `y`. One that accumulates has `x` and `r`, and perhaps
`y`; r runs over the inner loops. `point_tiles` and `row_tiles` choose the sizes without measuring:
enough bytes in flight for each multiprocessor, vectors of 16 bytes, no spilled registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.ir.arithmetic.index import Axis, Index, product
from tcdebug.compiler.ir.cost import itemsize
from tcdebug.compiler.ir.expr import loads

WARP = 32
MULTIPROCESSORS = 132
"""The number of an H100 or H200. Choices based on it are good enough on other devices."""
THREAD_BYTES = 32
"""Bytes of the widest buffer per thread: two loads of 16 bytes in flight."""
FULL = 1.15
"""The most elements that the tiles of a row may cover, relative to the length of the row."""


@dataclass(frozen=True)
class TileDimension:
    """The axes that one dimension of a tile covers, in row-major order."""

    name: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> Index:
        """The number of points along the dimension."""
        return product(a.size for a in self.axes)

    @property
    def exact(self) -> bool:
        """Whether the size is known to be a multiple of the block, so that no mask is needed."""
        if self.block == 1 and self.name != "r":  # one program per point
            return True
        size = self.size.constant
        return size is not None and size > 0 and size % self.block == 0


@dataclass(frozen=True)
class Tile:
    """The dimensions of a tile. A program has a single value of each axis in `alone`."""

    groups: tuple[TileDimension, ...]
    alone: tuple[Axis, ...]
    warps: int
    persistent: bool = False
    """Whether the tile covers the inner loops completely."""
    stages: int = 3
    """Software pipelining: the loads of a loop that Triton keeps in flight, where it can."""

    @property
    def constants(self) -> dict[str, int]:
        """The compile-time constants of a kernel and their values."""
        return {f"{g.name.upper()}BLOCK": g.block for g in self.groups}

    @property
    def every(self) -> frozenset[str]:
        """The names of all dimensions."""
        return frozenset(g.name for g in self.groups)

    @property
    def rows(self) -> frozenset[str]:
        """The names of the dimensions without r."""
        return self.every - {"r"}

    def group(self, name: str) -> TileDimension:
        """Return the dimension with a name."""
        return next(g for g in self.groups if g.name == name)

    def resized(self, blocks: dict[str, int], warps: int) -> Tile:
        """Return the tile with other block sizes and another number of warps."""
        groups = tuple(replace(g, block=blocks.get(g.name, g.block)) for g in self.groups)
        return replace(self, groups=groups, warps=warps)


def power_of_two(value: int) -> int:
    """Return the smallest power of two that is at least `value`."""
    return 1 << max(0, value - 1).bit_length()


def widest(kernel: FlatKernel, along: frozenset[Axis] | None = None) -> int:
    """Return the bytes of the widest element accessed that varies along the given axes.

    Without axes, these are the loops of a program.
    """
    if along is None:
        along = frozenset(kernel.inner if kernel.accumulates else (*kernel.outer, *kernel.inner))
    touched = [(n.address, n.dtype) for n in kernel.nodes if n.name in kernel.stored]
    touched += [(e.index[0], e.dtype) for n in kernel.nodes for e in loads(n.body) if e.index]
    return max((itemsize(t) for where, t in touched if where.axes & along), default=4)


def addresses(kernel: FlatKernel) -> list[Index]:
    """Return the addresses of stores, then those of loads."""
    stores = [n.address for n in kernel.nodes if n.name in kernel.stored]
    return stores + [load.index[0] for n in kernel.nodes for load in loads(n.body) if load.index]
