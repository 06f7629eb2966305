"""The memory with which kernels are measured: zeros in the layout of their buffers."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from tcdebug.compiler.ir.graph import Buffer


def has_known_layout(memory: Iterable[Buffer]) -> bool:
    """Return whether no size or stride is symbolic."""
    sizes = (i for buffer in memory for i in (*buffer.size, *buffer.stride))
    return all(i.constant is not None for i in sizes)


def zeros(buffer: Buffer) -> torch.Tensor:
    """Return zeros with the layout of a buffer, on its device."""
    size = [s.constant or 0 for s in buffer.size]
    stride = [s.constant or 0 for s in buffer.stride]
    return torch.empty_strided(size, stride, dtype=buffer.dtype, device=buffer.device).zero_()
