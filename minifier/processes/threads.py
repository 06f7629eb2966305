"""Limits a process that forks candidates to one thread."""

from __future__ import annotations

import os
from functools import cache

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.patching import Patch, install

PATCHES = (Patch("torch", "set_num_threads", "candidates hang if the script sets its threads"),)
(SET_THREADS,) = PATCHES


class Threads:
    """Keeps this process at one thread, because OpenMP pools do not survive a fork.

    The number that the script asks for is remembered, and used in the children.
    """

    def __init__(self) -> None:
        self._wanted = torch.get_num_threads()
        self._set = torch.set_num_threads
        self._set(1)
        install(SET_THREADS, lambda original: self._remember, EventLog(None))

    @property
    def several(self) -> bool:
        """Whether the script asked for more than one thread."""
        return self._wanted > 1

    def _remember(self, count: int) -> None:
        self._wanted = count

    def restore(self) -> None:
        """In a child, use the number of threads that the script asked for."""
        os.environ["OMP_NUM_THREADS"] = str(self._wanted)
        self._set(self._wanted)


@cache
def one_thread() -> Threads:
    """Keep this process at one thread from now on."""
    return Threads()
