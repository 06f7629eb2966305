"""Lowerings of operators that write to an input of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from tcdebug.compiler.ir.arithmetic.index import Index, is_nonnegative
from tcdebug.compiler.ir.arithmetic.order import is_positive
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.lower.interface.site import Lowering, Site, make_axes
from tcdebug.compiler.lower.interface.tensor import NotLowered, Tensor

aten = torch.ops.aten


def copy_(site: Site, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor | None:
    """An update in place: the kernel of `source` stores into x, an input or a view of one."""
    view = site.operand_value(0)
    stride = site.sizes.indices(view.stride())
    if not elements_are_apart(x.size, stride):
        raise NotLowered("elements of the input may share memory")
    axes, point = make_axes(x.size, "i", stride)
    target = x.at(point)
    if not isinstance(target, Load) or target.buffer not in site.memory.inputs:
        raise NotLowered("not into an input of the graph")
    body = source.broadcast(point, x.dtype)
    if isinstance(body, Load) and body.buffer not in site.memory.computed:
        raise NotLowered("only a copy")
    for load in loads(body):
        owner = site.memory.owner.get(load.buffer, load.buffer)
        if owner == target.buffer and load.key != target.key:
            raise NotLowered("the input is read at other places than it is written")
    stored = site.store_into(target, axes, body)
    if x.buffer is not None:
        return stored
    if site.node.users:
        raise NotLowered("the updated part of an input is read")
    return None


def elements_are_apart(size: Sequence[Index], stride: Sequence[Index]) -> bool:
    """Whether elements are known not to overlap: each stride spans all smaller dimensions."""
    places = zip(size, stride, strict=True)
    steps = sorted(((n, s) for n, s in places if n != 1), key=lambda step: estimate(step[1]))
    if steps and not is_positive(steps[0][1]):
        return False
    return all(
        is_nonnegative(stride - size * below) for (size, below), (_, stride) in pairwise(steps)
    )


TABLE: dict[torch._ops.OpOverload, Lowering] = {aten.copy_.default: copy_}
