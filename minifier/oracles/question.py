"""The question to an oracle: what does a candidate do when it is compiled under toggles?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tcdebug.compiler.gate.toggles import Toggles


class Candidate(Protocol):
    """A version of what fails: a graph with its inputs, or a script."""

    @property
    def key(self) -> str:
        """A key that is stable across processes. Equal candidates have equal keys."""
        ...

    @property
    def size(self) -> int:
        """The number of nodes; 0 for a script."""
        ...


CandidateType = TypeVar("CandidateType", bound=Candidate)


@dataclass(frozen=True)
class Question(Generic[CandidateType]):
    """A candidate, the toggles it is compiled under, and the reason for asking."""

    candidate: CandidateType
    toggles: Toggles
    purpose: str
    kept: Path | None = None
    """The folder for the texts of its stages, if the question is asked for them."""
