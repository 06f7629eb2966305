"""Reductions: ways to make a candidate smaller, one per file.

A reduction lists possible edits of a candidate and applies any subset of them. It never runs the
target; the loop of the reducer chooses the subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tcdebug.minifier.cases.case import Case


class Reducible(Protocol):
    """A candidate that a reducer makes smaller: a graph with its inputs, or a script."""

    @property
    def key(self) -> str:
        """A key that is equal for equal candidates."""
        ...

    @property
    def size(self) -> int:
        """The number that the user sees: nodes of a graph, or lines of a script."""
        ...


ReducibleType = TypeVar("ReducibleType", bound=Reducible)


class CandidateReduction(Protocol[ReducibleType]):
    """One way to make a candidate smaller. An edit is a string that names a part of the candidate.

    `ordered` edits build on one another (drop the last node, the last two, ...), so the loop
    searches for the longest prefix. Other edits are independent.
    """

    @property
    def name(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    def edits(self, case: ReducibleType, /) -> list[str]:
        """Return the possible edits, the most promising first."""
        ...

    def apply(self, case: ReducibleType, edits: Sequence[str], /) -> ReducibleType | None:
        """Return the candidate with these edits applied; None if the result is not valid."""
        ...


CaseReduction = CandidateReduction[Case]
"""A reduction of a graph with its inputs."""
