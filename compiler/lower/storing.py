"""Lowerings of operators that write to an input of the graph."""

from __future__ import annotations

from itertools import pairwise

import torch

from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import Buffer
from tcdebug.compiler.ir.index import is_nonnegative, is_positive
from tcdebug.compiler.ir.size_estimate import estimate
from tcdebug.compiler.lower.site import Lowering, Site, make_axes
from tcdebug.compiler.lower.tensor import NotLowered, Tensor

aten = torch.ops.aten


def copy_(site: Site, x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """An update in place, as functionalization leaves it: the kernel of `source` stores into x."""
    memory = site.memory.inputs.get(x.buffer or "")
    if memory is None:
        raise NotLowered("not into an input of the graph")
    if memory.device.type != "cpu":
        raise NotLowered(f"an input on {memory.device}")
    if not elements_are_apart(memory):
        raise NotLowered("elements of the input may share memory")
    _check_reads(site, memory, source)
    return site.store_into(memory, source)


def _check_reads(site: Site, memory: Buffer, source: Tensor) -> None:
    """Raise NotLowered unless the source is computed, from no other element of the memory."""
    _, point = make_axes(memory.size, "i", memory.stride)
    body = source.broadcast(point)
    if isinstance(body, Load) and body.buffer not in site.memory.computed:
        raise NotLowered("only a copy")
    for load in loads(body):
        owner = site.memory.owner.get(load.buffer, load.buffer)
        if owner == memory.name and (load.buffer != owner or load.index != point):
            raise NotLowered("the input is read elsewhere than it is written")


def elements_are_apart(buffer: Buffer) -> bool:
    """Whether no two elements surely share memory: each stride spans all smaller ones."""
    places = zip(buffer.size, buffer.stride, strict=True)
    steps = sorted(((n, s) for n, s in places if n != 1), key=lambda step: estimate(step[1]))
    if steps and not is_positive(steps[0][1]):
        return False
    return all(
        is_nonnegative(stride - size * below)
        for (size, below), (_, stride) in pairwise(steps)
    )


TABLE: dict[torch._ops.OpOverload, Lowering] = {aten.copy_.default: copy_}
