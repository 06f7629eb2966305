"""The limits after which a run counts as a hang, adjusted to how long other runs took."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.processes.process import Ended, Limits

SLOWER = 10.0
"""A candidate may take this many times as long as the first run, and be silent for as long."""
AS_SLOW = 3.0
"""It may take this many times as long as the slowest run that ended, on a busy machine."""
LEAST_SILENCE = 5.0
"""The smallest limit on the time without a sign of progress, in seconds."""
SUSPICIOUS = 10.0
"""A first run that shows no sign of progress for this many seconds is suspected to hang."""


@dataclass(frozen=True)
class Duration:
    """How long a run took, and its longest time without a sign of progress, in seconds."""

    seconds: float
    silence: float

    @classmethod
    def of(cls, run: Outcome | Ended) -> Duration:
        """Return the duration of a run that ended."""
        return cls(run.seconds, run.silence)


class HangLimit:
    """The limits of a run. `least` is the smallest time limit, in seconds."""

    def __init__(self, limits: Limits, least: float, jobs: int) -> None:
        self._most = limits.seconds
        self._least = least
        self._crowd = max(1.0, jobs / (os.cpu_count() or 1))
        self.limits = limits

    def tighten(self, seconds: float) -> None:
        """Derive the time limit from the duration of a first run, which ran alone."""
        limit = self._crowd * max(self._least, SLOWER * seconds)
        self._set(min(limit, self.limits.seconds), self.limits.silence)

    def tighten_for_hangs(self, first: Duration) -> None:
        """Derive both limits from a first run, if the search is for a hang."""
        self.tighten(first.seconds)
        silence = self._crowd * max(LEAST_SILENCE, SLOWER * first.silence)
        self._set(self.limits.seconds, silence)

    def reset(self) -> None:
        """Allow again what a first run may take."""
        self._set(self._most, self.limits.silence)

    def was_whole(self, seconds: float) -> bool:
        """Return whether a run that took so long had all the time that a first run may take."""
        return seconds >= self._most

    def loosen(self, ended: Duration) -> None:
        """Raise the limits for later runs after a run that ended."""
        seconds = max(min(self._most, AS_SLOW * ended.seconds), self.limits.seconds)
        silence = self.limits.silence
        if silence is not None:
            silence = max(AS_SLOW * ended.silence, silence)
        self._set(seconds, silence)

    def still_counts(self, hang: Outcome) -> bool:
        """Return whether a run that hung had at least the time that a run has now."""
        if hang.endless:
            return True
        if not hang.silenced:
            return hang.seconds > 0.9 * self.limits.seconds
        return self.limits.silence is not None and hang.silence > 0.9 * self.limits.silence

    def _set(self, seconds: float, silence: float | None) -> None:
        self.limits = Limits(seconds, self.limits.memory, silence)
