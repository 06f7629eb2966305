"""Times several versions of a call beside each other, in turns, with an estimate of the noise."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

BATCH_SECONDS = 2e-3
"""How long one turn of a version takes at least."""
ROUNDS = 31
"""The most turns of each version."""
FEWEST = 7


@dataclass(frozen=True)
class Ratio:
    """The time of one version over another's: the median over rounds, and its noise.

    `noise` is half the width of the 95 % interval of the median, as a share of it, from the median
    absolute deviation of the rounds. Both versions of a round run within milliseconds, so that load
    from outside mostly cancels.
    """

    value: float
    noise: float


def times(
    calls: Mapping[str, Callable[[], Any]], device: str, seconds: float
) -> dict[str, list[float]]:
    """Seconds of a call of each version, by round. The versions take turns in each round.

    Each round begins with another version. If the order were turned, two versions of three would
    follow themselves every other round, with their memory in the cache: 0.89 of the time of the
    same call in the middle, for tensors of 3 MB.

    On a CPU these are seconds of the calling thread, so the calls must use no other thread.
    """
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    clock = time.perf_counter if device == "cuda" else time.thread_time
    repeats = {name: _repeats(call, wait) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    for number in range(ROUNDS):
        first = number % len(calls)
        for name in [*calls][first:] + [*calls][:first]:
            call, count = calls[name], repeats[name]
            wait()
            start = clock()
            for _ in range(count):
                call()
            wait()
            found[name].append(max(1e-9, clock() - start) / count)
        if time.perf_counter() > end and number + 1 >= FEWEST:
            break
    return found


def _repeats(call: Callable[[], Any], wait: Callable[[], None]) -> int:
    """The number of calls in a turn."""
    for _ in range(2):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    return max(1, math.ceil(BATCH_SECONDS / max(1e-7, time.perf_counter() - start)))


def ratio(ours: list[float], others: list[float]) -> Ratio:
    """Our time over another version's, from the same rounds."""
    by_round = [a / b for a, b in zip(ours, others, strict=True)]
    middle = statistics.median(by_round)
    spread = statistics.median(abs(r - middle) for r in by_round)
    error = 1.96 * 1.4826 * 1.2533 * spread / math.sqrt(len(by_round))
    return Ratio(middle, error / middle)
