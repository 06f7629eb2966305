"""What lowering works with: a tensor as a function from an index to an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.expr import Expr, Load
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.ir.index import ZERO, Index, product

Point = tuple[Index, ...]
Element = Callable[[Point], Expr]


class NotLowered(Exception):
    """This use of an operator has no lowering; it becomes an extern call, with this reason."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a size whose elements are computed by `element`.

    `buffer` names the memory that holds exactly these elements, if any does.
    """

    dtype: torch.dtype
    size: tuple[Index, ...]
    element: Element
    buffer: str | None = None

    @property
    def numel(self) -> Index:
        """Elements, as an index over the size symbols."""
        return product(self.size)

    def at(self, point: Point, dtype: torch.dtype | None = None) -> Expr:
        """The element at a point, converted to a dtype."""
        if len(point) != len(self.size):
            raise NotLowered(f"{len(point)} indices into {len(self.size)} dimensions")
        value = self.element(point)
        return value if dtype is None else cast(value, dtype)

    def broadcast(self, point: Point, dtype: torch.dtype | None = None) -> Expr:
        """The element that a point of a larger, broadcast tensor reads."""
        skip = len(point) - len(self.size)
        own = tuple(
            ZERO if size == 1 else where
            for size, where in zip(self.size, point[skip:], strict=True)
        )
        return self.at(own, dtype)

    def viewed(self, size: Sequence[Index], index: Callable[[Point], Point]) -> Tensor:
        """The same elements under other indices: `index` maps a new point to an old one."""
        return Tensor(self.dtype, tuple(size), lambda point: self.element(index(point)))


def from_buffer(buffer: Buffer) -> Tensor:
    """A tensor that reads a buffer."""

    def element(point: Point) -> Expr:
        # a dimension of size one has one index, however it is written
        where = tuple(ZERO if n == 1 else i for i, n in zip(point, buffer.size, strict=True))
        return Load(buffer.dtype, buffer.name, where)

    return Tensor(buffer.dtype, buffer.size, element, buffer.name)
