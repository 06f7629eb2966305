"""Keeps what reads across cache lines out of kernels that reduce, on a CPU.

A pointwise kernel reads operands whose neighbours lie along different axes in blocks that it
transposes. A kernel that reduces has its lanes along one axis, and reads some operands across cache
lines in each of its sweeps: the gradient of a batch norm does, if the image is in channels-last
layout and the gradient that enters is contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.arithmetic.size_estimate import estimate, nearest
from tcdebug.compiler.ir.expr import Load, loads
from tcdebug.compiler.ir.graph import Buffer, Node, Pointwise, Reduction

MANY = 1 << 15
"""The fewest elements that are worth a kernel of their own."""


def apart_across(producer: Node, consumer: Node, buffers: Mapping[str, Buffer]) -> bool:
    """Return whether a producer is stored because it reads across, and a reduction reads it."""
    if not isinstance(producer, Pointwise) or not isinstance(consumer, Reduction):
        return False
    if producer.out.device.type != "cpu" or estimate(producer.out.numel) < MANY:
        return False
    read = (load for load in whole_loads(producer) if load.buffer in buffers)
    addresses = (buffers[load.buffer].address(load.index) for load in read)
    along = {nearest(address, producer.axes) for address in addresses} - {None}
    return len(along) > 1  # a gather has its neighbours anywhere


def whole_loads(producer: Pointwise) -> list[Load]:
    """Return the loads of elements that a producer reads anew at each of its points."""
    axes = {axis for axis in producer.axes if axis.size.constant != 1}
    return [e for e in loads(producer.body) if axes <= {a for i in e.index for a in i.axes}]
