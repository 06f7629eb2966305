"""What a process asks of Linux for itself, by prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""
ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER"""


def bound_to_this_process(*, adopts: bool = True) -> Callable[[], None]:
    """A function for a child of this process to call first, before it runs anything else.

    From then on Linux kills the child when the thread that started it ends, however that ends. With
    `adopts`, a descendant that loses its parent becomes a child of this child, so that it can be
    found. All that the function needs is loaded here: in the child that could deadlock.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def bind() -> None:
        prctl(DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
        if adopts:
            prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
        if os.getppid() != parent:  # it ended before this was asked for
            os.kill(os.getpid(), signal.SIGKILL)

    return bind
