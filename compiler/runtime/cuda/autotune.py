"""Finds the fastest tile of a kernel by measuring on the GPU, with buffers of the real layout.

The search is a coordinate descent from the default tile: it doubles or halves one block size or the
number of warps at a time, as long as that is faster. The result is cached by the kernel's source
and the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.codegen.triton.source import (
    TritonSource,
    canonical,
    module_text,
    retiled,
)
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.codegen.triton.written import TritonKernel, zeros_are_valid_indices
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.measured_events import TileChosen
from tcdebug.compiler.runtime.cuda.load import CudaKernel, load_kernels
from tcdebug.compiler.runtime.measured_memory import has_known_layout, zeros

ROUNDS = 10
LONGEST_SEARCH = 24
"""The most tiles that are tried for a kernel."""
GAIN = 0.98
"""A tile is better if it takes at most this share of the time."""
LARGEST_TILE = 1 << 15
WARPS = (1, 32)

Measure = Callable[[TritonKernel], float]
"""A kernel -> milliseconds. Raises KernelError if the kernel cannot be launched."""


def tuned(source: TritonSource, options: Options, log: EventLog) -> TritonSource:
    """Return the source with the fastest tile for each kernel without symbolic sizes."""
    device = torch.cuda.get_device_name()
    found: dict[str, TritonKernel] = {}
    for name, kernel in source.kernels.items():
        if kernel.call.shares:
            found[name] = replace(kernel, tile=found[kernel.call.shares].tile)
            continue
        if kernel.call.kernel.template is not None or kernel.combines:
            # a template was chosen by measurement; the tiles of a combo kernel are in its code
            found[name] = kernel
            continue
        path = _path(kernel, device, options.cache_dir)
        tile = _kept(path, kernel.tile)
        tried = 0
        if tile is None and _is_fixed(kernel) and zeros_are_valid_indices(kernel):
            with seams.real_tensors():
                tile, tried = descend(kernel, _measure(kernel, options))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"blocks": _blocks(tile), "warps": tile.warps}))
        found[name] = kernel if tile is None else retiled(kernel, tile)
        chosen = found[name].tile
        log.emit(TileChosen(name, _blocks(chosen), chosen.warps, tried))
    text = module_text([*source.parts.values(), *found.values()])
    return TritonSource(text, found, source.parts)


def descend(kernel: TritonKernel, measure: Measure) -> tuple[Tile, int]:
    """Return the fastest tile that coordinate descent finds, and the number of tiles tried."""
    best, tried = kernel.tile, {_key(kernel.tile)}
    fastest = measure(kernel)
    improved = True
    while improved:
        improved = False
        for tile in _neighbours(best):
            if _key(tile) in tried or len(tried) >= LONGEST_SEARCH:
                continue
            tried.add(_key(tile))
            try:
                taken = measure(retiled(kernel, tile))
            except KernelError:  # it needs more shared memory or threads than the device has
                continue
            if taken < fastest * GAIN:
                best, fastest, improved = tile, taken, True
                break
    return best, len(tried)


def _neighbours(tile: Tile) -> Iterator[Tile]:
    blocks = _blocks(tile)
    for factor in (2, 0.5):
        warps = int(tile.warps * factor)
        if WARPS[0] <= warps <= WARPS[1]:
            yield tile.resized({}, warps)
    for group in tile.groups:
        if not group.axes or (group.name == "r" and tile.persistent):
            continue
        for factor in (2, 0.5):
            size = int(group.block * factor)
            others = 1
            for name, block in blocks.items():
                others *= block if name != group.name else 1
            if size >= 1 and size * others <= LARGEST_TILE:
                yield tile.resized({group.name: size}, tile.warps)


def _blocks(tile: Tile) -> dict[str, int]:
    return {g.name: g.block for g in tile.groups}


def _key(tile: Tile) -> tuple[int, ...]:
    return (*_blocks(tile).values(), tile.warps)


def _path(kernel: TritonKernel, device: str, cache_dir: Path) -> Path:
    parts = (device, str(_key(kernel.tile)), canonical(kernel))
    key = blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return cache_dir / "tiles" / f"{key}.json"


def _kept(path: Path, tile: Tile) -> Tile | None:
    """Return the tile that an earlier search found, if there was one."""
    try:
        known = json.loads(path.read_text())
        return tile.resized(known["blocks"], known["warps"])
    except (OSError, ValueError, KeyError):
        return None


def _is_fixed(kernel: TritonKernel) -> bool:
    return (
        has_known_layout(kernel.memory) and not kernel.call.symbols and not kernel.call.parameters
    )


def _measure(kernel: TritonKernel, options: Options) -> Measure:
    """Return a function that times a kernel on zeros."""
    name, memory = kernel.call.kernel.name, [zeros(buffer) for buffer in kernel.memory]
    addresses = [m.data_ptr() for m in memory]
    silent = EventLog(None)

    def milliseconds(tried: TritonKernel) -> float:
        loaded = load_kernels(module_text([tried]), {name: tried}, options, silent)[name]
        stream = torch.cuda.current_stream().cuda_stream
        extent = [int(text) for text in tried.call.before[1:]]
        return min(_timed(loaded, stream, extent, addresses) for _ in range(3))

    return milliseconds


def _timed(kernel: CudaKernel, stream: int, extent: list[int], addresses: list[int]) -> float:
    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    if status := kernel.run(stream, *extent, *addresses):
        kernel.mend(status, stream, *extent, *addresses)
    start.record()
    for _ in range(ROUNDS):
        kernel.run(stream, *extent, *addresses)
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return milliseconds / ROUNDS
