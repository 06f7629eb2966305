"""Tells whether other processes had the CPUs while a program was timed.

A program of several threads takes a hundred times as long if one of its threads waits for a CPU
while the others wait for that thread. On a busy machine this can last for seconds, so that even the
best of many runs is such a run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from tcdebug.minifier.cases.operators.data import gradients, storages
from tcdebug.minifier.cases.subclasses.parts import cotangents

Result = TypeVar("Result")

QUIET = 0.1
"""A timed run may have waited for CPUs for this part of its time, all threads together."""


def waited() -> float:
    """Return the seconds that the threads of this process have waited for a CPU.

    It is 0 where the system does not tell.
    """
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            total += int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return total / 1e9


def waited_here() -> float:
    """Return the seconds that this thread has waited for a CPU; 0 if the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def timed(call: Callable[[], Result], threads: int) -> tuple[Result, float, bool]:
    """Return the result of a call, its seconds, and whether waits for a CPU do not distort them.

    Waits of a program in one thread are subtracted. Several threads also wait for each other.
    """
    if threads == 1:
        start = time.perf_counter()
        before = waited_here()  # within the time, so that no more is subtracted than was measured
        result = call()
        waits = waited_here() - before
        return result, time.perf_counter() - start - waits, True
    before, start = waited(), time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    return result, taken, is_quiet(taken, waited() - before)


def timed_passes(
    forward: Callable[[], Sequence[Any]], inputs: Sequence[Any], finish: Callable[[], None]
) -> tuple[float, float, bool]:
    """Return the seconds of forward and of backward, and whether waits do not distort them.

    `forward` returns the outputs for the inputs. `finish` waits until the kernels have ended.
    Backward takes 0 seconds if no gradients are required.
    """
    threads = torch.get_num_threads()
    leaves = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    before = storages(leaves)

    def finished_forward() -> Sequence[Any]:
        outputs = forward()
        finish()
        return outputs

    def finished_backward() -> None:
        gradients(roots, leaves, given, before)
        finish()

    finish()
    outputs, seconds, quiet = timed(finished_forward, threads)
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    if not (leaves and roots and torch.is_grad_enabled()):
        return seconds, 0.0, quiet
    given = cotangents(roots)
    finish()
    _, taken, quiet_too = timed(finished_backward, threads)
    return seconds, taken, quiet and quiet_too


def is_quiet(seconds: float, waited_for: float) -> bool:
    """Return whether a run of these seconds was disturbed little by waits of all its threads."""
    return waited_for <= QUIET * seconds
