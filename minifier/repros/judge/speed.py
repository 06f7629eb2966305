"""Compares the speed of a graph with eager, for a repro of the perf oracle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcdebug.minifier.judging.timing.cpu_waits import timed_passes
from tcdebug.minifier.repros.judge.calls import flatten, synchronize

LEAST_SECONDS, LEAST_RUNS, MOST_RUNS = 1.0, 5, 200
MOST_SECONDS = 5.0
"""No more runs after this time, even if all of them waited for a CPU."""
NOISE = 1e-4
"""The difference in seconds that is never slow."""


@dataclass(frozen=True)
class Speed:
    """Judges whether a graph recompiles unnecessarily or is slower than eager."""

    slower_than: float
    """The limit, as a multiple of the time of eager."""
    dynamic: Sequence[tuple[int, int]] = ()
    """The dynamic dimensions, as pairs of input and dimension."""

    def __call__(
        self, eager: Callable[..., Any], compiled: Callable[..., Any], inputs: Callable[[], Any]
    ) -> dict[str, Any]:
        """Return the result of a comparison."""
        try:
            with torch.compiler.set_stance("fail_on_recompile"):
                compiled(*inputs())
                compiled(*self._larger(inputs))
        except RuntimeError:
            return {"kind": "recompile", "phase": "forward"}
        best = best_times((eager, compiled), inputs)
        for phase, wanted, taken in zip(("forward", "backward"), *best, strict=True):
            if taken > self.slower_than * wanted + NOISE:
                return {"kind": "slow", "phase": phase, "times": round(taken / wanted, 1)}
        return {"kind": "ok"}

    def _larger(self, inputs: Callable[[], Any]) -> list[Any]:
        """Return the inputs with dynamic dimensions twice as long."""
        values: list[Any] = list(inputs())
        for k, dim in self.dynamic:
            longer = torch.cat([values[k].detach()] * 2, dim)
            values[k] = longer.requires_grad_(values[k].requires_grad)
        return values


def best_times(
    calls: Sequence[Callable[..., Any]], inputs: Callable[[], Any]
) -> list[tuple[float, float]]:
    """Return the best times of forward and backward. Runs that waited for a CPU count last."""
    runs: list[list[tuple[float, float, bool]]] = [[] for _ in calls]
    start = time.monotonic()
    for count in range(MOST_RUNS):
        taken = time.monotonic() - start
        if count >= LEAST_RUNS and taken > LEAST_SECONDS:
            quiet = min(sum(one[2] for one in some) for some in runs)
            if quiet >= LEAST_RUNS or taken > MOST_SECONDS:
                break
        for some, call in zip(runs, calls, strict=True):
            some.append(timed_call(call, inputs()))
    counted = [[one for one in some if one[2]] or some for some in runs]
    return [(min(f for f, _, _ in some), min(b for _, b, _ in some)) for some in counted]


def timed_call(call: Callable[..., Any], values: Sequence[Any]) -> tuple[float, float, bool]:
    """Return the seconds of forward and of backward, and whether waits do not distort them."""
    return timed_passes(lambda: flatten(call(*values)), values, synchronize)
