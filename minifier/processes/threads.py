"""The number of threads of a process that forks candidates."""

from __future__ import annotations

import os
from functools import cache

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, install

PATCHES = (
    Patch("torch", "set_num_threads", "a script that asks for threads leaves candidates hanging"),
)
(SET_THREADS,) = PATCHES


class Threads:
    """Keeps this process at one thread, for OpenMP pools do not survive a fork.

    What the script asks for is remembered, and given to the children.
    """

    def __init__(self) -> None:
        self._wanted = torch.get_num_threads()
        self._set = torch.set_num_threads
        self._set(1)
        install(SET_THREADS, lambda original: self._remember, EventLog(None))

    def _remember(self, count: int) -> None:
        self._wanted = count

    def restore(self) -> None:
        """In a child: the threads that the script would have."""
        os.environ["OMP_NUM_THREADS"] = str(self._wanted)
        self._set(self._wanted)


@cache
def one_thread() -> Threads:
    """Keep this process at one thread from now on."""
    return Threads()
