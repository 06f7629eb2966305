"""A kernel as it was written in Triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcdebug.compiler.codegen.kernels.call import KernelCall
from tcdebug.compiler.codegen.kernels.flatten import FlatKernel
from tcdebug.compiler.codegen.triton.tiles import Tile
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
