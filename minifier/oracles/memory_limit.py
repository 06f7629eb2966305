"""The memory limit of a run, adjusted to what runs that ended have held."""

from __future__ import annotations

from tcdebug.minifier.cases.outcome import OUT_OF_MEMORY, Kind, Outcome

LARGER = 4
"""A candidate may hold this many times as much memory as the largest run that ended."""
LEAST = 1 << 30
"""The smallest limit, in bytes. Candidates run compilers, which hold some hundred megabytes."""


class MemoryLimit:
    """The memory limit of a run in bytes. `most` is that of the first run; None means no limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.memory = most

    def tighten(self, ended: Outcome) -> None:
        """Derive the limit from a run that ended, if the search is for memory without end."""
        if self._most is not None:
            self.memory = min(max(LEAST, LARGER * ended.memory), self._most)

    def loosen(self, ended: Outcome) -> None:
        """Raise the limit for later runs after a run that ended."""
        if self.memory is not None and self._most is not None:
            self.memory = max(self.memory, min(LARGER * ended.memory, self._most))

    def still_counts(self, killed: Outcome) -> bool:
        """Return whether a run that was ended at its limit held what a run may hold now."""
        return self.memory is None or killed.memory > 0.9 * self.memory


def is_over_memory(outcome: Outcome) -> bool:
    """Return whether a run was ended because it held too much memory."""
    return outcome.kind is Kind.KILLED and outcome.signature.endswith(OUT_OF_MEMORY)
