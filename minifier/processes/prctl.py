"""Process settings of Linux: prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""
ADOPT_ORPHANS = 36
"""PR_SET_CHILD_SUBREAPER"""


def process_control() -> Callable[..., Any]:
    """Return prctl(2)."""
    return ctypes.CDLL(None, use_errno=True).prctl


def bound_to_this_process(*, adopts: bool = True) -> Callable[[], None]:
    """Return a function that a child of this process must call before it does anything else.

    From then on Linux kills the child when the thread that started it ends, for any reason. With
    `adopts`, a descendant that loses its parent becomes a child of this child, so that it can be
    found. Everything that the function needs is loaded here, since loading in the child could
    deadlock.
    """
    prctl = process_control()
    parent = os.getpid()

    def bind() -> None:
        prctl(DIE_WITH_PARENT, int(signal.SIGKILL), 0, 0, 0)
        if adopts:
            prctl(ADOPT_ORPHANS, 1, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the request took effect
            os.kill(os.getpid(), signal.SIGKILL)

    return bind
