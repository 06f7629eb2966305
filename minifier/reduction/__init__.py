"""Reductions: ways to make a case smaller, one per file.

A reduction lists possible edits of a case and applies any subset of them. It never runs the target;
the reducer chooses the subsets. `ordered` edits build on one another (drop the last node, the last
two, ...), so the reducer searches for the longest prefix. Other edits are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tcdebug.minifier.cases.case import Case


class CaseReduction(Protocol):
    """One way to make a case smaller. An edit is a string whose meaning depends on the case."""

    @property
    def name(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    def edits(self, case: Case) -> list[str]:
        """Return the possible edits, the most promising first."""
        ...

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with these edits applied; None if the result is not a valid case."""
        ...
