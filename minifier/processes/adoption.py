"""Forks a process for another one, which becomes its parent.

The fork is made twice. The process in between exits, so Linux gives the last one to the nearest
ancestor that adopts orphans. Waiting, limits and CPU-seconds are then those of a child that this
ancestor has started.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tcdebug.minifier.processes.prctl import ADOPT_ORPHANS, DIE_WITH_PARENT, process_control

LONGEST = 1.0
"""Seconds that an orphan waits for Linux to give it its parent, which takes microseconds."""


def forked_for(
    parent: int, announce: Callable[[int], None], fork: Callable[[], int] = os.fork
) -> bool:
    """Fork a process that becomes a child of `parent`, and return whether this is that process.

    It calls `announce` with its id. If it does not become a child of `parent`, it announces 0 and
    ends.
    """
    between = fork()
    if between:
        os.waitpid(between, 0)
        return False
    if fork():
        os._exit(0)
    adopted = _become_child_of(parent)
    announce(os.getpid() if adopted else 0)
    if not adopted:
        os._exit(1)
    return True


def _become_child_of(parent: int) -> bool:
    """Wait until an orphan is a child of `parent`, and let it lead a session that ends with it.

    False if it does not become its child, which it can only if `parent` adopts orphans and is its
    nearest ancestor that does.
    """
    end = time.monotonic() + LONGEST
    while os.getppid() != parent:
        if time.monotonic() > end:
            return False
        os.sched_yield()
    os.setsid()
    control = process_control()
    control(DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
    control(ADOPT_ORPHANS, 1, 0, 0, 0)
    return os.getppid() == parent
