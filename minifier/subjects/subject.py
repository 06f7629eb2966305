"""The interface between an investigation and what fails.

An investigation repeats, bisects, minimises and reports in the same way for every subject. The
subject knows how to run a candidate under toggles, how to reduce it, and how to write its repro.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.layers import LayerFinding, Searchable
from tcdebug.minifier.cases.outcome import Outcome
from tcdebug.minifier.oracles.question import CandidateType
from tcdebug.minifier.oracles.runner import Runner
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.process import Limits
from tcdebug.minifier.search.reducing import Reducing


@dataclass(frozen=True)
class ReproFacts(Generic[CandidateType]):
    """The contents of a repro. `base` are toggles that are always in force when it runs."""

    candidate: CandidateType
    failure: Outcome
    culprits: tuple[str, ...]
    base: Toggles
    passing: CandidateType | None
    """The nearest candidate that passes."""
    runs: int
    """How many runs must pass before the repro says that it does not fail."""
    limits: Limits


@dataclass(frozen=True)
class WrittenRepro:
    """A written repro. `inputs` says whether its inputs are seeded, inlined or stored."""

    path: Path
    inputs: str
    note: str = ""
    """A note for the report, in case this is the repro that reproduces the failure."""
    must_pass: bool = False
    """Whether the next form is tried if this one does not pass with the culprit off."""


@dataclass(frozen=True)
class KnownReason(Generic[CandidateType]):
    """A form of a candidate that passes if there is a certain reason for its failure."""

    candidate: CandidateType
    purpose: str
    """Why it is run."""
    note: str
    """What a report says if it passes."""


Returned = TypeVar("Returned", covariant=True)


class AllValues(Protocol[Returned]):
    """A candidate that returns all its values, and what may fail alone if one of them is wrong."""

    @property
    def case(self) -> Returned:
        """The candidate that returns all its values."""
        ...

    def part(self, wrong: int) -> Returned | None:
        """Return what may fail alone if the result at this position is wrong first."""
        ...


class Subject(Runner[CandidateType], Protocol[CandidateType]):
    """Something that fails: a captured graph or a whole script."""

    @property
    def backend(self) -> str:
        """The name of the backend that compiles it."""
        ...

    @property
    def interpreters(self) -> Interpreters | None:
        """Interpreters that are waiting to run its repros, if there are any."""
        ...

    @property
    def keeps_stages(self) -> bool:
        """Whether a run can leave the texts of the stages of a compile."""
        ...

    def reducer(self, candidate: CandidateType, log: EventLog) -> Reducing[CandidateType] | None:
        """Return what makes a candidate smaller; None if nothing can."""
        ...

    def returned_values(
        self, candidate: CandidateType, failure: Outcome
    ) -> AllValues[CandidateType] | None:
        """Return the candidate that returns all its values; None if that would say nothing."""
        ...

    def named_call(self, candidate: CandidateType, failure: Outcome) -> CandidateType | None:
        """Return the part of a candidate that a failure names; None if it names none."""
        ...

    def find_layer(
        self, asked: Searchable, base: Toggles, failure: Outcome, confidence: float
    ) -> LayerFinding:
        """Find the layer of torch at fault if no unit is. Raises BudgetUsed."""
        ...

    def repros(self, facts: ReproFacts[CandidateType], path: Path) -> Iterator[WrittenRepro]:
        """Write the repro in every possible way, the most self-contained first."""
        ...

    def short_form(self, facts: ReproFacts[CandidateType], path: Path) -> Path | None:
        """Write a short form of a repro without the script; None if none fails in the same way."""
        ...

    def lines(self, candidate: CandidateType) -> list[str]:
        """Return the user's source lines that remain in a candidate."""
        ...

    def explanations(
        self, candidate: CandidateType, failure: Outcome
    ) -> Iterator[KnownReason[CandidateType]]:
        """Yield forms of a candidate that pass if a known reason explains its failure."""
        ...

    def misregistered(self, candidate: CandidateType) -> list[str]:
        """Return errors in the registration of the user's custom operators in a candidate."""
        ...
