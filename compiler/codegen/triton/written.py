"""A kernel as it was written in Triton."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import chain

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.ir.expr import Call, Expr, Load, indices, indirect_atoms, walk
from tcdebug.compiler.ir.graph import Buffer


@dataclass(frozen=True)
class TritonKernel:
    """A kernel, its call, and what Triton needs to compile it."""

    call: KernelCall
    tile: Tile
    flat: FlatKernel
    memory: tuple[Buffer, ...]
    """The buffers whose addresses it takes, in order."""
    signature: Mapping[str, str]
    """Argument -> Triton's name of its type; `size` if its width is chosen at the call."""
    checked: bool
    """Whether it asserts on the device that indices are in range."""
    combines: tuple[str, ...] = ()
    """For a combo kernel, the kernels that it runs."""


def zeros_are_valid_indices(kernel: TritonKernel) -> bool:
    """Whether no index of a kernel leaves its range if all memory is zero at first.

    An index out of range stops the device. So each checked index must be an element as it is in
    memory, which the kernel does not overwrite: `x[i - 1]` reads before the first element, and
    `i.add_(1)` moves `x[i]` with each call.
    """
    overwritten = {node.into for node in kernel.flat.nodes}
    return all(
        _is_unchanged(atom.expr, overwritten)
        for node in kernel.flat.nodes
        for index in (node.address, *chain.from_iterable(map(indices, walk(node.body))))
        for atom in indirect_atoms(index)
        if atom.checked
    )


def _is_unchanged(value: Expr, overwritten: Set[str]) -> bool:
    if isinstance(value, Call) and value.name == "cast":
        return _is_unchanged(value.args[0], overwritten)
    return isinstance(value, Load) and bool(value.index) and value.buffer not in overwritten
