"""The number of threads of a process that forks candidates."""

from __future__ import annotations

import os
from functools import cache

import torch


class Threads:
    """Keeps this process at one thread, for OpenMP pools do not survive a fork.

    What the script asks for is remembered, and given to the children.
    """

    def __init__(self) -> None:
        self._wanted = torch.get_num_threads()
        self._set = torch.set_num_threads
        self._set(1)
        torch.set_num_threads = self._remember  # type: ignore[assignment] # positional is enough

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
