"""Captures and replays a compiled graph as CUDA graphs, so that one launch replaces hundreds.

A capture has its own memory for inputs and outputs. Inputs that have the same address in every
call, such as parameters and saved activations, are read in place. Others are copied into the
capture's memory before each replay. Outputs are returned without a copy. This is safe, because a
capture is not replayed while one of its outputs is in use: another capture is made instead, or,
beyond `MOST`, the graph runs without one.

The first captures of all graphs on a stream share a memory pool, so that one can use the temporary
memory of another. The outputs of a later capture may lie in that memory, so a capture is not
replayed while outputs of a later one are in use either. Further captures of the same graph have
memory of their own.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch

from tcdebug.compiler import seams
from tcdebug.compiler.configuration.dim_gears import gears_of
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CudaGraphCaptured, CudaGraphSkipped

Function = Callable[[list[Any]], Sequence[Any]]

MOST = 8
"""The most captures of one graph, for different sizes or addresses, or while outputs are in use."""
SMALL = 1 << 16
"""The largest output of a forward, in bytes, that is copied instead of watched."""


@dataclass(eq=False)
class CapturedGraph:
    """A CUDA graph with the memory that it reads and writes."""

    graph: Any
    inputs: list[Any]
    """The inputs of the capture. Those in `copied` are the capture's own memory."""
    copied: tuple[int, ...]
    direct: tuple[tuple[int, int], ...]
    """(position, address) of the inputs that it reads in place."""
    returned: tuple[int | None, ...]
    """For each output, the position of the input that it is; None if the capture computes it."""
    outputs: list[Any]
    watched: tuple[tuple[int, int], ...]
    """(storage, its reference count while nobody uses it) of the outputs."""
    shared: Shared | None
    """The memory that it shares with others; None if it has its own."""

    def reads(self, args: Sequence[Any]) -> bool:
        """Return whether the inputs that it reads in place have their addresses."""
        return all(args[k].data_ptr() == address for k, address in self.direct)

    def free(self) -> bool:
        """Return whether its outputs are no longer in use."""
        return all(seams.storage_uses(storage) <= held for storage, held in self.watched)

    def harmless(self) -> bool:
        """Return whether a replay overwrites no output of a later capture that is in use."""
        return self.shared is None or all(later.free() for later in self.shared.after(self))


@dataclass(eq=False)
class Shared:
    """A memory pool, with the captures that were made in it, in order."""

    pool: Any
    holder: Any
    """A capture that keeps the pool alive. Otherwise the pool is freed with its last capture, and
    the next capture into it fails."""
    captures: list[weakref.ref[CapturedGraph]] = field(default_factory=list)

    def after(self, capture: CapturedGraph) -> Iterable[CapturedGraph]:
        """Yield the later captures, whose outputs may lie in the temporary memory of this one."""
        for known in reversed(self.captures):
            later = known()
            if later is capture:
                return
            if later is not None:
                yield later


class CudaGraphs:
    """A compiled graph that is captured in its second call. It takes its arguments in a list.

    `written` are the positions of inputs that the graph writes to, `sizes` those of inputs that are
    numbers. With `gears`, a call is captured only if all of its sizes are among them. `keeps` is
    true for a forward, whose outputs may be kept for backward.
    """

    def __init__(
        self,
        function: Function,
        log: EventLog,
        *,
        written: frozenset[int],
        sizes: tuple[int, ...],
        gears: tuple[int, ...],
        keeps: bool,
    ) -> None:
        self._function = function
        self._log = log
        self._written = written
        self._sizes = sizes
        self._gears = frozenset(gears)
        self._keeps = keeps
        self._seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._captures: dict[tuple[int, ...], list[CapturedGraph]] = {}
        self._moving: set[int] = set()  # inputs that had several addresses
        self._said: set[str] = set()
        self._off = ""

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        key = tuple(args[k] for k in self._sizes)
        for capture in self._captures.get(key, ()):
            if capture.reads(args) and capture.free() and capture.harmless():
                return self._replay(capture, args)
        addresses = tuple(a.data_ptr() if isinstance(a, torch.Tensor) else 0 for a in args)
        self._gears |= gears_of(args)
        before, self._seen[key] = self._seen.get(key), addresses
        reason = self._against(key, args)
        if reason:
            self._skip(reason)
        if reason or before is None:  # the first call loads kernels, which a capture cannot do
            return self._function(args)
        self._moved(enumerate(before), addresses)
        for capture in self._captures.get(key, ()):
            self._moved(capture.direct, addresses)
        return self._capture(key, args)

    def _moved(self, places: Iterable[tuple[int, int]], addresses: Sequence[int]) -> None:
        """Copy inputs whose address changed, from now on."""
        self._moving |= {k for k, address in places if addresses[k] != address}

    # -- conditions -------------------------------------------------------------------------

    def _against(self, key: tuple[int, ...], args: Sequence[Any]) -> str:
        """Return why a call is not captured; empty if it is."""
        if self._off:
            return self._off
        if torch.cuda.is_current_stream_capturing():
            return "the caller is capturing already"
        if sum(map(len, self._captures.values())) >= MOST:
            return f"there are {MOST} captures already, for other sizes or with outputs in use"
        spans = [_span(args[k]) for k in range(len(args)) if isinstance(args[k], torch.Tensor)]
        if self._written and _overlap(spans):
            return "inputs share memory, and some are written to"
        return self._out_of_gear(key)

    def _out_of_gear(self, key: tuple[int, ...]) -> str:
        others = [size for size in key if size not in self._gears]
        if self._gears and others:
            gears = ", ".join(map(str, sorted(self._gears)))
            return f"size {others[0]} is not among the gears {gears}"
        return ""

    def _skip(self, reason: str) -> None:
        """Log why the graph runs without a capture, once per reason."""
        if reason not in self._said:
            self._said.add(reason)
            self._log.emit(CudaGraphSkipped(reason))

    # -- capture and replay -----------------------------------------------------------------

    def _capture(self, key: tuple[int, ...], args: list[Any]) -> Sequence[Any]:
        start = time.perf_counter()
        tensors = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor)]
        copied = tuple(k for k in tensors if k in self._moving)
        inputs = list(args)
        for k in copied:
            inputs[k] = _like(args[k])
        graph = torch.cuda.CUDAGraph()
        shared = None if key in self._captures else _shared(torch.cuda.current_stream())
        try:
            outputs = _recorded(graph, shared, lambda: self._function(list(inputs)))
        except RuntimeError as error:
            self._off = f"a capture failed: {str(error).splitlines()[0]}"
            self._skip(self._off)
            return self._function(args)
        returned = tuple(_position(o, inputs) for o in outputs)
        direct = tuple((k, args[k].data_ptr()) for k in tensors if k not in copied)
        for k in tensors:  # inputs that are read in place belong to the caller
            if k not in copied:
                inputs[k] = None
        kept = [o if at is None else None for o, at in zip(outputs, returned, strict=True)]
        del outputs
        own = [seams.storage_id(o) for o in self._watched(kept, direct, args)]
        watched = tuple((storage, seams.storage_uses(storage)) for storage in dict.fromkeys(own))
        capture = CapturedGraph(graph, inputs, copied, direct, returned, kept, watched, shared)
        if shared is not None:
            shared.captures.append(weakref.ref(capture))
        self._captures.setdefault(key, []).append(capture)
        seconds = round(time.perf_counter() - start, 6)
        self._log.emit(CudaGraphCaptured(list(key), len(copied), len(direct), seconds))
        return self._replay(capture, args)

    def _watched(
        self, outputs: Sequence[Any], direct: Sequence[tuple[int, int]], args: Sequence[Any]
    ) -> list[torch.Tensor]:
        """Return the outputs in the capture's memory that the caller may keep."""
        theirs = {seams.storage_id(args[k]) for k, _ in direct}
        tensors = [o for o in outputs if isinstance(o, torch.Tensor) and not self._is_copied_out(o)]
        return [o for o in tensors if seams.storage_id(o) not in theirs]

    def _is_copied_out(self, output: torch.Tensor) -> bool:
        return self._keeps and output.numel() * output.element_size() <= SMALL

    def _replay(self, capture: CapturedGraph, args: list[Any]) -> Sequence[Any]:
        for k in capture.copied:
            _fill(capture.inputs[k], args[k])
        capture.graph.replay()
        for k in self._written:
            if k in capture.copied:
                args[k].copy_(capture.inputs[k])
        results = tuple(
            args[at] if at is not None else self._handed_out(output)
            for output, at in zip(capture.outputs, capture.returned, strict=True)
        )
        args.clear()
        return results

    def _handed_out(self, output: Any) -> Any:
        if not isinstance(output, torch.Tensor):
            return output
        return _copy(output) if self._is_copied_out(output) else output.detach()


@lru_cache(maxsize=16)
def _shared(stream: torch.cuda.Stream) -> Shared:
    """Return the memory pool that first captures on a stream share."""
    pool, holder = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(holder, pool=pool, capture_error_mode="thread_local"):
        torch.zeros(1, device="cuda")
    return Shared(pool, holder)


def _recorded(
    graph: torch.cuda.CUDAGraph, shared: Shared | None, run: Callable[[], Sequence[Any]]
) -> list[Any]:
    """Run a function and record its launches in `graph`. Raises what the function raises.

    The garbage collector is off meanwhile, because freeing a tensor or an older graph may end a
    capture.
    """
    pool = shared.pool if shared is not None else None
    collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            return list(run())
    except RuntimeError:
        # random number generation stays broken after a failed capture, until one succeeds
        with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            torch.zeros(1, device="cuda")
        raise
    finally:
        if collecting:
            gc.enable()


def _fill(memory: torch.Tensor, given: torch.Tensor) -> None:
    """Copy an input into memory of the same layout.

    torch does not copy into expanded tensors, whose elements share memory. Each is copied once.
    """
    if 0 in memory.stride():
        once = tuple(slice(None) if stride else slice(1) for stride in memory.stride())
        memory, given = memory[once], given[once]
    memory.copy_(given)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Uninitialised memory for a tensor of the same layout."""
    size, stride = tensor.size(), tensor.stride()
    return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same layout, including gaps and repetitions."""
    if tensor.is_contiguous():
        return tensor.clone()
    start, end = _span(tensor)
    memory = tensor.as_strided(((end - start) // tensor.element_size(),), (1,)).clone()
    return memory.as_strided(tensor.size(), tensor.stride(), 0)


def _position(output: Any, inputs: Sequence[Any]) -> int | None:
    """Return the position of the input that an output is, if it is one."""
    same = (k for k, given in enumerate(inputs) if given is output)
    return None if output is None else next(same, None)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the range of addresses of a tensor, [start, end)."""
    last = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def _overlap(spans: Sequence[tuple[int, int]]) -> bool:
    ordered = sorted(s for s in spans if s[0] != s[1])
    return any(second[0] < first[1] for first, second in pairwise(ordered))
