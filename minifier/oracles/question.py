"""What an oracle is asked: what becomes of a candidate that is compiled under toggles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tcdebug.compiler.gate.toggles import Toggles


class Candidate(Protocol):
    """A version of what fails: a graph with its inputs, or a script."""

    @property
    def key(self) -> str:
        """Equal candidates have equal keys, in every process."""
        ...

    @property
    def size(self) -> int:
        """The number of nodes; 0 where nodes are not counted."""
        ...


CandidateType = TypeVar("CandidateType", bound=Candidate)



@dataclass(frozen=True)
class Question(Generic[CandidateType]):
    """A candidate, the toggles it is compiled under, and the purpose of asking."""

    candidate: CandidateType
    toggles: Toggles
    purpose: str
    kept: Path | None = None
    """The folder for the texts of its stages, if they are what the question is for."""
