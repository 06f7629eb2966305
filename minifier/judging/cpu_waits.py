"""Tells whether other processes had the CPUs while a program was timed.

A program of several threads takes a hundred times as long if one of its threads waits for a CPU
while the others wait for that thread. On a busy machine this can last for seconds, so that even the
best of many runs is such a run.
"""

from __future__ import annotations

import os
from pathlib import Path

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


def is_quiet(seconds: float, waited_for: float) -> bool:
    """Return whether a run of these seconds was disturbed little by waits of all its threads."""
    return waited_for <= QUIET * seconds
