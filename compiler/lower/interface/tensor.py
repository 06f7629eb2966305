"""The tensor of a lowering: a function from an index to an element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tcdebug.compiler.ir.arithmetic.index import ZERO, Index, product
from tcdebug.compiler.ir.build import cast
from tcdebug.compiler.ir.expr import Expr, Load
from tcdebug.compiler.ir.graph import Buffer

Point = tuple[Index, ...]
Element = Callable[[Point], Expr]


class NotLowered(Exception):
    """A node cannot be lowered and becomes an extern call. The message is the reason."""


@dataclass(frozen=True)
class Tensor:
    """A tensor whose elements are computed by `element`.

    `buffer` names the buffer that contains exactly these elements, if there is one.
    """

    dtype: torch.dtype
    size: tuple[Index, ...]
    element: Element
    buffer: str | None = None

    @property
    def numel(self) -> Index:
        """The number of elements, as an index over the size symbols."""
        return product(self.size)

    def at(self, point: Point, dtype: torch.dtype | None = None) -> Expr:
        """Return the element at a point, converted to a dtype if given."""
        if len(point) != len(self.size):
            raise NotLowered(f"{len(point)} indices for {len(self.size)} dimensions")
        value = self.element(point)
        return value if dtype is None else cast(value, dtype)

    def converted(self, dtype: torch.dtype) -> Tensor:
        """Return the tensor in another dtype."""
        return Tensor(dtype, self.size, lambda point: self.at(point, dtype))

    def broadcast(self, point: Point, dtype: torch.dtype | None = None) -> Expr:
        """Return the element for a point of a larger tensor to which this one is broadcast."""
        skip = len(point) - len(self.size)
        own = tuple(
            ZERO if size == 1 else where
            for size, where in zip(self.size, point[skip:], strict=True)
        )
        return self.at(own, dtype)

    def viewed(self, size: Sequence[Index], index: Callable[[Point], Point]) -> Tensor:
        """Return a tensor with other indices.

        `index` maps a point of the new size to one of this size.
        """
        return Tensor(self.dtype, tuple(size), lambda point: self.element(index(point)))


def from_buffer(buffer: Buffer) -> Tensor:
    """Return a tensor that reads a buffer."""

    def element(point: Point) -> Expr:
        # canonical: the only index of a dimension of size one is 0
        where = tuple(ZERO if n == 1 else i for i, n in zip(point, buffer.size, strict=True))
        return Load(buffer.dtype, buffer.name, where)

    return Tensor(buffer.dtype, buffer.size, element, buffer.name)
