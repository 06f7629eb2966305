"""One fault under investigation: the candidate that isolates it, and what is known about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault
from tcdebug.minifier.bisection.enabled import Enabled
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.investigation.report import StageDiff
from tcdebug.minifier.oracles.question import CandidateType

RECENT = 32
"""The number of passing candidates that are kept. The nearest is shown beside the repro."""


@dataclass
class Branch(Generic[CandidateType]):
    """One fault, and the candidate that isolates it."""

    failure: Outcome
    base: Toggles
    """The toggles that switch off what belongs to other faults."""
    best: CandidateType
    fault: Fault | None = None
    uncertain: bool = False
    """Whether a complete search did not confirm the fault."""
    alternatives: tuple[Fault, ...] = ()
    """Faults that cause the same failure in the same candidate."""
    is_layer: bool = False
    """Whether a whole layer of torch is at fault rather than a unit."""
    misregistered: list[str] = field(default_factory=list)
    """Errors in the registration of the user's custom operators."""
    enabled: Enabled | None = None
    passing: deque[CandidateType] = field(default_factory=lambda: deque(maxlen=RECENT))
    stages: StageDiff | None = None
    repro: Path | None = None
    short: Path | None = None
    """A short form of the repro that was seen to fail in the same way."""
    fails: bool = False
    """Whether the repro was seen to fail by itself."""
    passes: bool = False
    """Whether it was seen to pass with the culprit off."""
    only_fails: bool = False
    """Whether it was seen to fail with only the units on that the fault needs."""
    confirmed: bool = False

    @property
    def off(self) -> list[str]:
        """The units without which it passes."""
        return [fault.unit for fault in self.faults]

    @property
    def faults(self) -> list[Fault]:
        """The fault and its alternatives."""
        return [self.fault, *self.alternatives] if self.fault is not None else []

    def whole_without(self, ask: Callable[[Sequence[str]], Outcome]) -> Outcome:
        """Return the outcome of the whole with units off: those of this fault.

        If it still fails, but not without a partner of the culprit, that becomes the culprit. The
        two are at fault together in the smallest candidate. In the whole, other steps may take the
        place of the one, but not of the other: a wrong plan of memory damages every buffer.
        """
        left = ask(self.off)
        if not left.failed or self.fault is None or self.enabled is None or self.alternatives:
            return left
        taken = {decision.unit: decision for decision in self.fault.failure.decisions}
        for unit in self.enabled.partners:
            if unit in taken and (without := ask([unit])).kind is Kind.OK:
                others = (other for other in self.enabled.partners if other != unit)
                partners = (*others, self.fault.unit)
                self.fault = replace(self.fault, decisions=(taken[unit],), whole_unit=True)
                self.enabled = replace(self.enabled, unit=unit, partners=partners)
                return without
        return left

    @property
    def only(self) -> list[str]:
        """The only units that must be on, if they are known."""
        return self.enabled.units() if self.enabled is not None else []

    @property
    def nearest_passing(self) -> CandidateType | None:
        """The passing candidate that is closest in size; the latest of several."""
        return min(reversed(self.passing), key=lambda c: abs(c.size - self.best.size), default=None)
