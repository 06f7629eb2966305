"""Measures what a profile is compared with: the speed of copies, and the cost of profiling."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile, record_function

CPU_BYTES, GPU_BYTES = 64 << 20, 256 << 20
"""The size of the tensor that is copied, which exceeds most caches."""
ROUNDS = 5
GPU_ROUNDS = 50
"""More rounds, because other processes on the GPU delay most of the copies."""
EVENTS = 200
"""The number of events in a round, over which the cost of one is averaged."""


def copy_speeds() -> dict[str, float]:
    """Return the bytes per second that each device reads and writes while it copies a tensor.

    The best of several rounds counts. The current GPU is measured if the program has used it.
    """
    found = {"cpu": _speed("cpu", CPU_BYTES, ROUNDS)}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no annotation
        free, _ = torch.cuda.mem_get_info()
        found["cuda"] = _speed("cuda", min(GPU_BYTES, free // 4), GPU_ROUNDS)
    return found


def _speed(device: str, size: int, rounds: int) -> float:
    with torch.no_grad():
        source = torch.ones(size // 4, device=device)
        target = torch.empty_like(source)

        def copy() -> None:
            target.copy_(source)

        return 2 * size / min(_seconds(device, copy) for _ in range(rounds))


def _seconds(device: str, work: Callable[[], object]) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def event_seconds() -> tuple[float, float]:
    """Return the seconds that the profiler adds to an operator and to a range made in Python."""

    def operators() -> None:
        for _ in range(EVENTS):
            torch.empty(0)

    def ranges() -> None:
        for _ in range(EVENTS):
            with record_function("calibration"):
                pass

    plain = _best(operators)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True):  # without it, 2.11 warns
        operator, ranged = _best(operators), _best(ranges)
    return max(operator - plain, 0.0) / EVENTS, ranged / EVENTS


def _best(work: Callable[[], object]) -> float:
    """Return the least seconds of several rounds, since other load can only add to them."""
    return min(_seconds("cpu", work) for _ in range(ROUNDS))
