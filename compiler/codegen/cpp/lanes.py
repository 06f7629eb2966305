"""Vector lanes that run along an outer axis, each with accumulators of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tcdebug.compiler.codegen.cpp.accumulator import CppAccumulator
from tcdebug.compiler.codegen.cpp.emit import CppEmitter
from tcdebug.compiler.codegen.cpp.text import TYPES
from tcdebug.compiler.codegen.kernels.flatten import FlatNode
from tcdebug.compiler.ir.arithmetic.index import Axis
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate

LANES = 64
"""Outer points that column mode processes together."""


class Lanes:
    """The loops over the lanes of a kernel, and the arrays with an element per lane.

    If the axis is short, several rows are processed together (`short_columns.py`): the lanes of the
    innermost loop then continue from one row to the next.
    """

    def __init__(self, axis: Axis | None, rows: int, emit: CppEmitter) -> None:
        self.axis = axis
        self.rows = rows
        self.emit = emit
        self.width = estimate(axis.size) * rows if axis is not None and rows > 1 else LANES
        """The length of the arrays."""

    @property
    def count(self) -> str:
        """The number of lanes of the innermost loop."""
        return str(self.width) if self.rows > 1 else "lanes"

    def enter(self, count: str = "lanes") -> None:
        """Open a loop over lanes."""
        assert self.axis is not None
        block = self.emit.enter(f"for (int l = 0; l < {count}; ++l)", (self.axis,))
        block.add(f"const int64_t {self.axis.name} = from + l;")

    def leave(self, *, vectorize: bool) -> None:
        """Close a loop over lanes."""
        noted = f" reduction(|:{self.emit.missed})" if self.emit.missed else ""
        self.emit.leave(f"#pragma omp simd{noted}" if vectorize else "")

    def declare(self, nodes: Sequence[FlatNode]) -> None:
        """Declare the arrays for the values of nodes that have one per lane."""
        for node in nodes:
            self.emit.innermost.add(f"{TYPES[node.dtype]} kept_{node.name}[{self.width}];")

    def join(self, accumulators: Sequence[CppAccumulator]) -> None:
        """Merge the states of rows that were processed together."""
        for accumulator in accumulators if self.rows > 1 else ():
            block = self.emit.enter(f"for (int row = 1; row < {self.rows}; ++row)")
            joined = " ".join(accumulator.join("[l]", "[row * lanes + l]"))
            block.add(f"for (int l = 0; l < lanes; ++l) {{ {joined} }}")
            self.emit.leave()

    def repeat(self, nodes: Sequence[FlatNode]) -> None:
        """Repeat the values of the columns for each of the rows that are processed together."""
        for node in nodes if self.rows > 1 else ():
            name = f"kept_{node.name}"
            loop = f"for (int l = lanes; l < {self.width}; ++l)"
            self.emit.innermost.add(f"{loop} {name}[l] = {name}[l - lanes];")
