"""What an investigation needs to know of the thing that fails.

An investigation repeats, bisects, minimises, budgets and reports in the same way whatever fails.
The subject knows the rest: how a candidate is run under toggles, made smaller, and written as a
repro.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.layers import LayerFinding, Searchable
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.oracles.runner import Runner
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.search.reducing import Reducing


@dataclass(frozen=True)
class ReproFacts(Generic[CandidateType]):
    """What a repro says of a failure. `base` are toggles that are in force whenever it runs."""

    candidate: CandidateType
    failure: Outcome
    culprits: tuple[str, ...]
    base: Toggles
    passing: CandidateType | None
    """The nearest candidate that passes."""
    runs: int
    """How many runs have to pass before the repro is said not to fail."""
    limits: Limits


@dataclass(frozen=True)
class WrittenRepro:
    """A repro that was written. `inputs` says whether they are seeded, inlined or stored."""

    path: Path
    inputs: str
    note: str = ""
    """What the report says of it, if it is the one that reproduces the failure."""


class Subject(Runner[CandidateType], Protocol[CandidateType]):
    """Something that fails: a captured graph, or a whole script."""

    @property
    def backend(self) -> str:
        """The name of the backend that compiles it."""
        ...

    @property
    def keeps_stages(self) -> bool:
        """Whether a run can leave the texts of the stages of a compile."""
        ...

    def reducer(self, candidate: CandidateType, log: EventLog) -> Reducing[CandidateType] | None:
        """What makes a candidate smaller; None where nothing can."""
        ...

    def find_layer(
        self, asked: Searchable, base: Toggles, failure: Outcome, confidence: float
    ) -> LayerFinding:
        """The layer of torch at fault, where no unit is. Raises BudgetUsed."""
        ...

    def repros(self, facts: ReproFacts[CandidateType], path: Path) -> Iterator[WrittenRepro]:
        """Write a repro in every possible way, the most self-contained first."""
        ...

    def lines(self, candidate: CandidateType) -> list[str]:
        """The user's source lines that are left in a candidate."""
        ...
