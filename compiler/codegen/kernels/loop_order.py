"""Orders the loops of a reduction by the strides of the memory that they visit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.ir.arithmetic.index import Axis, Index
from tcdebug.compiler.ir.arithmetic.size_estimate import estimate
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.graph import Buffer, Pointwise, Scatter
from tcdebug.compiler.ir.operations import SCANS, gives_place
from tcdebug.compiler.schedule.kernel import Kernel


def by_strides(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """Return a kernel whose outer and inner loops go from large strides to small ones.

    Loops keep their order if the kernel reduces nothing, or if its results depend on the order: a
    scan, or a position.
    """
    kinds = [n.kind for n in kernel.nodes if not isinstance(n, Pointwise | Scatter)]
    if not kernel.inner or any(k in SCANS or gives_place(k) for k in kinds):
        return kernel
    if any(isinstance(n, Scatter) for n in kernel.nodes):
        return kernel
    touched = list(_touched(kernel, buffers))
    outer, inner = (_ordered(axes, touched) for axes in (kernel.outer, kernel.inner))
    return replace(kernel, outer=outer, inner=inner)


def _touched(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Iterator[Index]:
    """Yield the addresses that the inner loops visit."""
    made = {n.name for n in kernel.nodes}
    for node in kernel.nodes:
        if isinstance(node, Pointwise) and not kernel.is_inner(node):
            continue
        for load in loads(node.body):
            if load.buffer not in made:
                yield buffers[load.buffer].address(load.index)
        if isinstance(node, Pointwise) and node.name in kernel.stored:
            yield node.out.address(node.index)


def _ordered(axes: tuple[Axis, ...], touched: Sequence[Index]) -> tuple[Axis, ...]:
    strides = {axis: sum(_stride(a, axis) for a in touched) for axis in axes}
    return tuple(sorted(axes, key=lambda axis: (strides[axis] > 0, -strides[axis])))


def _stride(address: Index, axis: Axis) -> int:
    """Return the elements between neighbours along an axis; 0 if that is not known."""
    stride = address.coefficient(axis)
    return 0 if stride is None else abs(estimate(stride))
