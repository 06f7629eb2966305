"""Orders the loops of a reduction by the strides of the memory that they visit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcdebug.compiler.ir.arithmetic.index import Axis, Index
from tcdebug.compiler.ir.arithmetic.size_estimate import nearest, stride
from tcdebug.compiler.ir.expr import loads
from tcdebug.compiler.ir.graph import Buffer, Pointwise, Scan, Scatter
from tcdebug.compiler.ir.operations import SCANS, gives_place
from tcdebug.compiler.schedule.kernel import Kernel


def by_strides(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """Return a kernel whose outer and inner loops go from large strides to small ones.

    Memory whose neighbours are along an inner loop does not matter for the outer ones, if there is
    other memory. What is stored matters more than what is read, because a cache holds whole lines
    of the latter until their other elements are read.

    Loops keep their order if the kernel reduces nothing. Inner loops also keep theirs if results
    depend on it: those of a scan, or a position.
    """
    if not kernel.inner or any(isinstance(n, Scatter) for n in kernel.nodes):
        return kernel
    kinds = [n.kind for n in kernel.nodes if not isinstance(n, Pointwise)]
    stored, read = list(_stored(kernel)), list(_read(kernel, buffers))
    every = (*kernel.outer, *kernel.inner)
    across = ([a for a in found if nearest(a, every) in kernel.outer] for found in (stored, read))
    matter = next(filter(None, across), [*stored, *read])
    outer, inner = _ordered(kernel.outer, matter), _ordered(kernel.inner, [*stored, *read])
    if any(k in SCANS or gives_place(k) for k in kinds):
        inner = kernel.inner
    return replace(kernel, outer=outer, inner=inner)


def _stored(kernel: Kernel) -> Iterator[Index]:
    """Yield the addresses that the inner loops store."""
    for node in kernel.nodes:
        inside = isinstance(node, Scan) or (isinstance(node, Pointwise) and kernel.is_inner(node))
        if inside and node.name in kernel.stored:
            yield node.out.address(node.index)


def _read(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Iterator[Index]:
    """Yield the addresses that the inner loops read."""
    made = {n.name for n in kernel.nodes}
    for node in kernel.nodes:
        if isinstance(node, Pointwise) and not kernel.is_inner(node):
            continue
        for load in loads(node.body):
            if load.buffer not in made:
                yield buffers[load.buffer].address(load.index)


def _ordered(axes: tuple[Axis, ...], touched: Sequence[Index]) -> tuple[Axis, ...]:
    strides = {axis: sum(stride(a, axis) for a in touched) for axis in axes}
    return tuple(sorted(axes, key=lambda axis: (strides[axis] > 0, -strides[axis])))
