"""The interface of lowerings: the node being lowered, and functions that emit loop nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.effects import overlaps
from tcdebug.compiler.ir.arithmetic.index import ZERO, Axis, Index, to_index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.build import call, cast, constant, index_value
from tcdebug.compiler.ir.expr import Expr, Load, Parameter
from tcdebug.compiler.ir.graph import (
    Buffer,
    LoopNode,
    Origin,
    Pointwise,
    Ref,
    Scan,
    Scatter,
    contiguous_strides,
)
from tcdebug.compiler.ir.graph import Reduction as ReductionNode
from tcdebug.compiler.ir.operations import STORABLE, gives_place
from tcdebug.compiler.ir.representable import ROUND
from tcdebug.compiler.lower.interface.sizes import Sizes
from tcdebug.compiler.lower.interface.tensor import Element, NotLowered, Point, Tensor, from_buffer

Operand = Tensor | Index | Ref | bool | int | float
"""A tensor or scalar argument of a lowering. Ref is a number that is known at run time."""


def make_axes(
    size: Sequence[Index], prefix: str, strides: Sequence[Index] | None = None
) -> tuple[tuple[Axis, ...], Point]:
    """Return the loop axes of a size, and the point that they index.

    Dimensions of size one have no axis. With `strides`, the axes are sorted from the largest stride
    to the smallest, so that the innermost loop is contiguous in memory.
    """
    order = list(range(len(size)))
    if strides is not None:
        order.sort(key=lambda k: -estimate(strides[k]))
    axes: list[Axis] = []
    point = [ZERO] * len(size)
    for k in order:
        if size[k] != 1:
            axes.append(Axis(f"{prefix}{len(axes)}", size[k]))
            point[k] = to_index(axes[-1])
    return tuple(axes), tuple(point)


@dataclass(frozen=True)
class Memory:
    """The memory of a graph as far as it has been lowered."""

    names: frozenset[str] = frozenset()
    """The names of all values of the graph. Parts of a value must not have one of them."""
    inputs: dict[str, Buffer] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    """The buffers that loops fill."""
    owner: dict[str, str] = field(default_factory=dict)
    """Value without memory of its own -> the value whose memory it shares."""


class Site:
    """The node being lowered. `dtype` and `size` are those of its first result.

    Methods raise NotLowered if the node cannot be lowered.
    """

    def __init__(self, node: fx.Node, sizes: Sizes, origin: Origin, memory: Memory) -> None:
        self.node = node
        self.sizes = sizes
        self.origin = origin
        self.memory = memory
        self.emitted: list[LoopNode] = []
        self._taken: set[str] = set()

    def result(self, position: int = 0) -> torch.Tensor:
        """Return the fake tensor of a result, with eager's shape, strides and dtype."""
        value = self.node.meta["val"]
        if isinstance(value, tuple | list):
            value = value[position]
        if not isinstance(value, torch.Tensor):
            raise NotLowered("the result is not a tensor")
        return value

    def operand_value(self, position: int) -> torch.Tensor:
        """Return the fake tensor of an operand."""
        operand = self.node.args[position]
        value = operand.meta["val"] if isinstance(operand, fx.Node) else operand
        if not isinstance(value, torch.Tensor):
            raise NotLowered("an operand is not a tensor")
        return value

    @property
    def updates(self) -> bool:
        """Whether the operator writes to an operand."""
        target = self.node.target
        return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first result."""
        return self.result().dtype

    @property
    def size(self) -> tuple[Index, ...]:
        """The size of the first result."""
        return self.sizes.indices(self.result().shape)

    def tensor(self, element: Element, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor of the result's size, computed by `element`."""
        return Tensor(dtype or self.dtype, self.size, element)

    def scalar(self, value: Operand, dtype: torch.dtype) -> Expr:
        """Return a scalar operand as an expression of a dtype."""
        match value:
            case Index():
                return cast(index_value(value), dtype)
            case Ref():
                return cast(Parameter(torch.float64, value.name), dtype)
            case bool() | int() | float():
                return constant(dtype, value)
        raise NotLowered("a tensor where a number is expected")

    def operand(self, value: Operand, dtype: torch.dtype) -> Element:
        """The element function of an operand of a pointwise operation, broadcast and converted."""
        if isinstance(value, Tensor):
            return lambda point: value.broadcast(point, dtype)
        expr = self.scalar(value, dtype)
        return lambda point: expr

    def _fresh(self, suffix: str) -> str:
        name = f"{self.node.name}{suffix}"
        while name in self._taken or (name != self.node.name and name in self.memory.names):
            name += "_"
        self._taken.add(name)
        return name

    def store(self, tensor: Tensor, layout: torch.Tensor | None = None, suffix: str = "") -> Tensor:
        """Emit a node that stores a tensor in a buffer, with the strides of `layout` if given."""
        if tensor.dtype not in STORABLE:
            raise NotLowered(f"kernels do not store {tensor.dtype}")
        buffer = self._buffer(self._fresh(suffix), tensor.dtype, tensor.size, layout)
        axes, point = make_axes(tensor.size, "i", buffer.stride)
        body = tensor.at(point)
        self.emitted.append(Pointwise(buffer, axes, point, body, self.origin))
        return from_buffer(buffer)

    def store_into(self, target: Load, axes: tuple[Axis, ...], body: Expr) -> Tensor:
        """Emit a node that stores elements into an input. Returns the updated input."""
        buffer = replace(self.memory.inputs[target.buffer], name=self._fresh(""))
        self.emitted.append(
            Pointwise(buffer, axes, target.index, body, self.origin, into=target.buffer)
        )
        return from_buffer(buffer)

    def scatter(
        self,
        base: Tensor,
        points: Sequence[Index],
        place: Callable[[Point], Point],
        value: Callable[[Point, Expr], Expr],
        *,
        rounded: bool = True,
    ) -> Tensor:
        """Emit a scatter: `base` with elements updated at indices given by data, point by point.

        `place` maps a point to the index of an element, and `value` maps the point and the current
        element to the new one. The dtype of `base` may be wider than that of the result; the
        returned tensor is converted to the result's dtype if `rounded`. An operator that updates an
        input stores into the input.
        """
        if self.updates:
            memory = self.memory.inputs[base.buffer or ""]
        else:
            self.store(base, self.result(), "_base")
            memory = self.emitted[-1].out
        axes, point = make_axes(points, "i")
        index = place(point)
        body = value(point, Load(base.dtype, memory.name, index))
        buffer = replace(memory, name=self._fresh(""))
        self.emitted.append(Scatter(buffer, axes, index, body, self.origin, memory.name))
        result, dtype = from_buffer(buffer), self.dtype
        if dtype == base.dtype or not rounded:
            return result
        return self.tensor(lambda point: cast(result.at(point), dtype))

    def _buffer(
        self,
        name: str,
        dtype: torch.dtype,
        size: Sequence[Index],
        layout: torch.Tensor | None,
    ) -> Buffer:
        strides = contiguous_strides(size) if layout is None else self.strides(layout)
        return Buffer(name, dtype, tuple(size), strides, self.result().device)

    def strides(self, layout: torch.Tensor) -> tuple[Index, ...]:
        """Return the strides of a result: those of `layout`, unless elements would share memory."""
        if overlaps(layout):
            return contiguous_strides(self.sizes.indices(layout.shape))
        return self.sizes.indices(layout.stride())

    def reduce(
        self,
        kind: str,
        tensor: Tensor,
        dims: Sequence[int],
        *,
        keepdim: bool,
        dtype: torch.dtype | None = None,
        layout: torch.Tensor | None = None,
        suffix: str = "",
    ) -> Tensor:
        """Emit a reduction of a tensor over dimensions. Returns the buffer of the results."""
        dtype = dtype or tensor.dtype
        if dtype not in STORABLE or tensor.dtype not in STORABLE:
            raise NotLowered(f"kernels do not reduce {tensor.dtype} to {dtype}")
        kept = [k for k in range(len(tensor.size)) if k not in dims]
        axes, outer = make_axes([tensor.size[k] for k in kept], "i")
        reduced, inner = make_axes([tensor.size[k] for k in sorted(dims)], "r")
        point = [ZERO] * len(tensor.size)
        for k, where in zip([*kept, *sorted(dims)], [*outer, *inner], strict=True):
            point[k] = where
        size = [
            to_index(1) if k in dims else s
            for k, s in enumerate(tensor.size)
            if keepdim or k not in dims
        ]
        index = [
            ZERO if k in dims else point[k]
            for k in range(len(tensor.size))
            if keepdim or k not in dims
        ]
        buffer = self._buffer(self._fresh(suffix or f"_{kind}"), dtype, size, layout)
        body = tensor.at(tuple(point))
        if reduced:
            node: LoopNode = ReductionNode(
                buffer, axes, reduced, tuple(index), kind, body, self.origin
            )
        else:  # all reduced dimensions have size one
            body = _of_one(kind, body, dtype)
            node = Pointwise(buffer, axes, tuple(index), body, self.origin)
        self.emitted.append(node)
        return from_buffer(buffer)

    def scan(
        self,
        kind: str,
        tensor: Tensor,
        dim: int,
        suffix: str = "",
        *,
        stored: torch.dtype | None = None,
    ) -> Tensor:
        """Emit a scan of a tensor along a dimension. Returns the buffer of all states.

        They are accumulated in the dtype of the tensor. `stored` is that of the buffer, if it is
        neither that nor, for places, int64.
        """
        if tensor.dtype not in STORABLE:
            raise NotLowered(f"kernels do not accumulate {tensor.dtype}")
        others = [k for k in range(len(tensor.size)) if k != dim]
        axes, outer = make_axes([tensor.size[k] for k in others], "i")
        reduced, inner = make_axes([tensor.size[dim]], "r")
        place = dict(zip([*others, dim], [*outer, *inner], strict=True))
        point = tuple(place[k] for k in range(len(tensor.size)))
        dtype = stored or (torch.int64 if gives_place(kind) else tensor.dtype)
        buffer = self._buffer(self._fresh(suffix or f"_{kind}"), dtype, tensor.size, None)
        body = tensor.at(point)
        node: LoopNode
        if reduced:
            node = Scan(buffer, axes, reduced, point, kind, body, self.origin)
        else:  # the dimension has size one
            body = constant(dtype, 0) if gives_place(kind) else cast(body, dtype)
            node = Pointwise(buffer, axes, point, body, self.origin)
        self.emitted.append(node)
        return from_buffer(buffer)


Lowering = Callable[..., Any]
"""(site, *arguments of the operator) -> Tensor, or a tuple of Tensors for several results."""


def converted(dtype: torch.dtype, *operands: Operand) -> tuple[Operand, ...]:
    """Return operands in the dtype in which eager computes.

    If that is a half type, eager first rounds numbers to it, and tensors without dimensions, whose
    dtype may be wider. Other operands have the dtype, or a narrower one.
    """
    return operands if dtype not in ROUND else tuple(_in_half(o, dtype) for o in operands)


def _in_half(operand: Operand, dtype: torch.dtype) -> Operand:
    if isinstance(operand, Tensor):
        wider = operand.dtype.is_floating_point and operand.dtype != dtype
        return operand.converted(dtype) if wider else operand
    if not isinstance(operand, int | float):
        return operand
    rounded: float = torch.tensor(operand, dtype=dtype).item()
    return rounded


def _of_one(kind: str, body: Expr, dtype: torch.dtype) -> Expr:
    """Return the reduction of one element. A sum begins with 0, so that it is never -0."""
    if gives_place(kind):
        return constant(dtype, 0)
    if kind == "sum" and body.dtype.is_floating_point:
        return call("add", constant(body.dtype, 0), body)
    return body
