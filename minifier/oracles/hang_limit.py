"""The time limit after which a run counts as a hang, adjusted to how long other runs took."""

from __future__ import annotations

import os

from tcdebug.minifier.processes.process import Limits

SLOWER = 10.0
"""A candidate may take this many times as long as the first run."""
AS_SLOW = 3.0
"""It may take this many times as long as the slowest run that ended, on a busy machine."""


class HangLimit:
    """The limits of a run. `least` is the smallest time limit, in seconds."""

    def __init__(self, limits: Limits, least: float, jobs: int) -> None:
        self._most = limits.seconds
        self._least = least
        self._crowd = max(1.0, jobs / (os.cpu_count() or 1))
        self.limits = limits

    def tighten(self, seconds: float) -> None:
        """Derive the limit from the duration of a first run, which ran alone, in seconds."""
        limit = self._crowd * max(self._least, SLOWER * seconds)
        self._set(min(limit, self.limits.seconds))

    def loosen(self, seconds: float) -> None:
        """Raise the limit for later runs after a run that took this many seconds and ended."""
        self._set(max(min(self._most, AS_SLOW * seconds), self.limits.seconds))

    def _set(self, seconds: float) -> None:
        self.limits = Limits(seconds, self.limits.memory)
