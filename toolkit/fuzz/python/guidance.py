"""Coverage-guided fuzzing: features and ways that reach new lines of torch are drawn more often."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from tcdebug.fuzz.python.line_coverage import LineCoverage
from tcdebug.fuzz.verdict import ProgramVerdict

LEAST, MOST = 0.25, 8.0
"""The limits of a weight. 1.0 leaves a feature as it is drawn without guidance."""
NEWEST = 0.5
"""The part of the newest program in a moving average."""


@dataclass
class Guidance:
    """What the programs of a worker have reached, and what its next programs are drawn from."""

    names: Collection[str]
    """All features and ways."""
    coverage: LineCoverage = field(default_factory=LineCoverage)
    gains: dict[str, float] = field(default_factory=dict)
    """New lines of a program with a feature or way, as a moving average."""

    def counted(self, verdict: ProgramVerdict) -> ProgramVerdict:
        """Return the verdict of a child with the number of its new lines instead of the lines."""
        reached = self.coverage.add(verdict.lines)
        return msgspec.structs.replace(verdict, lines={}, reached=reached)

    def learn(self, names: Collection[str], verdict: ProgramVerdict) -> None:
        """Credit the features and the way of a program with the lines that it has added."""
        for name in names:
            earlier = self.gains.get(name, verdict.reached)
            self.gains[name] = NEWEST * verdict.reached + (1 - NEWEST) * earlier

    def weights(self) -> dict[str, float]:
        """Return how much more often each feature and way is drawn than without guidance."""
        return power_schedule(self.gains, self.names)


def power_schedule(gains: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    """Return the weight of each name: its gain in units of the median of those above zero.

    What was never drawn has the largest weight.
    """
    usual = statistics.median([gain for gain in gains.values() if gain > 0] or [1.0])
    return {
        name: min(max(gains[name] / usual, LEAST), MOST) if name in gains else MOST
        for name in names
    }
