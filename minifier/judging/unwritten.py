"""Fills memory that a program has not written yet, so that reading it gives wrong results.

Freed memory keeps its values, and new memory is zero. Compiled code that reads memory before it
writes it therefore often finds the right values, such as those of a run in eager, and fails only
now and then.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from tcdebug.minifier.cases.subclasses.parts import is_wrapper

BYTE = 0xFE
"""The byte of filled memory: a NaN in half precision, else a large negative number, and true."""
OTHER_BYTE = 0x00
"""The byte of memory that is filled for another run: zero, and false."""
M_PERTURB = -6
"""The parameter of glibc's `mallopt` with the complement of the byte that fills new memory."""
MOST_BYTES, SHARE = 1 << 29, 16
"""On a GPU, at most this much of the free memory is filled, and at most one part of so many."""
SORTING_BYTES = 1 << 16
"""Before glibc allocates so much, it sorts all freed memory into lists by size."""
SMALL_BYTES, SMALL_BLOCKS = 1 << 20, 16
"""Torch takes tensors of up to this size from blocks of their own. This many are filled."""

Memory = Callable[[], contextlib.AbstractContextManager[None]]
Run = TypeVar("Run")


@contextlib.contextmanager
def filled_memory(byte: int = BYTE) -> Iterator[None]:
    """Fill the free memory of GPUs in use, and what is allocated in this block on the CPU.

    On a CPU this needs glibc. Elsewhere memory stays as it is. Since glibc 2.38, so may a tensor of
    up to 1 KiB whose memory was freed in this block: it can come from a cache that is not filled.
    """
    fill_memory_of_gpus(byte)
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(M_PERTURB, byte ^ 0xFF)
    _sort_freed_memory(library)
    try:
        yield
    finally:
        library.mallopt(M_PERTURB, 0)


def _sort_freed_memory(library: ctypes.CDLL) -> None:
    """Make glibc sort this thread's freed memory.

    `mallopt` joins small freed blocks and leaves them unsorted. When such a block is allocated
    again, it may pass through a cache of the thread, and glibc 2.36 does not fill it then.
    """
    library.malloc.restype = ctypes.c_void_p
    library.free(ctypes.c_void_p(library.malloc(ctypes.c_size_t(SORTING_BYTES))))


def memory_for_calls(
    run: Callable[[], Run], same: Callable[[Run], bool], record: Callable[[Run, Run], None]
) -> Memory:
    """Return what surrounds a compiled call: filled memory, unless eager's results depend on it.

    `run` runs the program in eager, and `same` returns whether the results are those of a run in
    memory that is not filled. They are not if the program itself leaves memory unwritten. Then
    `record` is given the results of two runs, in memory that is filled with different bytes.
    """
    with contextlib.suppress(Exception):
        with filled_memory():
            again = run()
        if same(again):
            return filled_memory
        with filled_memory(OTHER_BYTE):
            other = run()
        record(again, other)
    return contextlib.nullcontext


def undefined(eager: Sequence[Any], *others: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return for each result of eager which elements depend on memory that nothing has written.

    They differ in one of the `others`, which ran in memory filled with different bytes. One run is
    not enough: what eager finds may be memory that was filled before. None stands for a result
    without such elements.
    """
    return [_differing(first, again) for first, *again in zip(eager, *others, strict=False)]


def overlook(elements: Sequence[torch.Tensor | None], results: Sequence[Any]) -> None:
    """Set the undefined elements of results to zero, so that only the others are compared."""
    for where, result in zip(elements, results, strict=False):
        if where is None or not isinstance(result, torch.Tensor) or result.shape != where.shape:
            continue
        with contextlib.suppress(RuntimeError), torch.inference_mode():  # strides may be 0
            result.masked_fill_(where, 0)


def _differing(first: Any, others: Sequence[Any]) -> torch.Tensor | None:
    found = [where for other in others if (where := _unequal(first, other)) is not None]
    differs = torch.stack(found).any(dim=0) if found else None
    return differs if differs is not None and differs.any() else None


def _unequal(first: Any, second: Any) -> torch.Tensor | None:
    tensors = isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    if not tensors or is_wrapper(first) or first.layout != torch.strided or first.is_quantized:
        return None
    if first.shape != second.shape or first.dtype != second.dtype:
        return None
    if first.dtype.itemsize == 1:  # floats of 8 bits have no comparison
        first, second = first.view(torch.uint8), second.view(torch.uint8)
    unequal: torch.Tensor = (first != second) & ~(first.isnan() & second.isnan())
    return unequal


def fill_memory_of_gpus(byte: int = BYTE) -> None:
    """Fill the free memory of the GPUs on which this process has memory."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # not annotated
        for device in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(device):
                _fill_free_memory(device, byte)


def filling_before_backward(memory: Memory, report: Callable[[str], None]) -> Callable[[str], None]:
    """Return a report of phases that fills the memory of GPUs again when backward begins.

    Memory that forward freed would otherwise be the first that backward takes. It does nothing if
    `memory` is not filled.
    """

    def reported(phase: str) -> None:
        if phase == "backward" and memory is filled_memory:
            fill_memory_of_gpus()
        report(phase)

    return reported


def _fill_free_memory(device: int, byte: int) -> None:
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    new = [min(MOST_BYTES, free // SHARE), *[SMALL_BYTES] * SMALL_BLOCKS]
    sizes = [*_free_parts(device), *new]
    for block in [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]:
        block.fill_(byte)


def _free_parts(device: int) -> list[int]:
    """Return the sizes of the free parts of blocks in use, the largest first.

    Torch puts a tensor into the smallest free part that is large enough, so tensors of these sizes
    take all of them.
    """
    if torch.cuda.get_allocator_backend() != "native":
        return []
    stream = torch.cuda.current_stream(device).cuda_stream
    parts = [
        block["size"]
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call] # not annotated
        if (segment["device"], segment["stream"]) == (device, stream)
        and tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    return sorted(parts, reverse=True)
