"""The sizes of tensors and the options of the compiler that are drawn for a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Options = tuple[tuple[str, object], ...]
"""Options of torch.compile, as pairs, which can be hashed."""

CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True)
class Extents:
    """The sizes of the tensors of a program."""

    sizes: tuple[int, ...]
    """Sizes of a dimension, the simplest first."""
    most_elements: int


SMALL = Extents((1, 2, 3, 5, 4, 8, 17, 16, 33, 0), 1 << 12)
"""Sizes around the widths of vectors, odd sizes, and 0."""
BLOCKS = Extents((*SMALL.sizes, 7, 32, 63, 64, 129, 257, 1024, 1025, 4097, 16385), 1 << 17)
"""Sizes around the blocks of kernels, and rows that are reduced in a loop or in parts."""
GRIDS = Extents((*BLOCKS.sizes, 65537, 70001, 1048577), 1 << 22)
"""Sizes with more rows than a grid may have blocks in its second dimension, 65535."""

STRETCHED = ((3, 5), (5, 2), (17, 9), (4, 11))
"""A size in the first call of a dynamic program, and the size in its place in the second."""
INDICES = (17, (1 << 31) + 11)
"""A size whose second value exceeds the indices that 32 bits hold."""


@dataclass(frozen=True)
class Device:
    """A device, and the sizes for it. Repeated entries are drawn more often."""

    name: str
    extents: tuple[Extents, ...]
    stretched: tuple[tuple[int, int], ...] = STRETCHED


ON_CPU = Device(CPU, (SMALL, SMALL, SMALL, BLOCKS, BLOCKS))
ON_CUDA = Device(CUDA, (SMALL, BLOCKS, BLOCKS, BLOCKS, BLOCKS, SMALL, GRIDS))
WITH_LARGE_TENSORS = Device(CUDA, (SMALL,), (INDICES,))
"""With these, each program that is called twice has a tensor of more than 2**31 elements."""

OPTIONS: Mapping[tuple[str, str], Sequence[Options]] = {
    ("inductor", CUDA): (
        (("triton.cudagraphs", True),),
        (("triton.persistent_reductions", False),),
        (("triton.cooperative_reductions", True),),
        (("triton.force_cooperative_reductions", True),),
        (("triton.multi_kernel", 1),),
        (("triton.prefer_nd_tiling", True), ("triton.max_tiles", 3)),
        (("triton.tile_reductions", True), ("triton.prefer_nd_tiling", True)),
        (("triton.use_block_ptr", True),),
        (("triton.use_tensor_descriptor", True),),
        (("triton.mix_order_reduction", True),),
        (("combo_kernels", True), ("benchmark_combo_kernel", False)),
        (("coordinate_descent_tuning", True),),
        (("max_autotune_pointwise", True),),
        (("split_reductions", False),),
        (("emulate_precision_casts", True),),
        (("size_asserts", True), ("triton.cudagraphs", True)),
    ),
    ("tcdebug", CUDA): (
        (("cudagraphs", True),),
        (("autotune", True),),
        (("autotune", True), ("templates", True)),
    ),
}
"""Options to compile with, by backend and device. Most programs are compiled without."""


def device_named(name: str, *, large: bool = False) -> Device:
    """Return the device of this name; `large` for tensors of more than 2**31 elements."""
    if name == CPU:
        return ON_CPU
    return WITH_LARGE_TENSORS if large else ON_CUDA
