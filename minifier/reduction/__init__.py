"""Reductions: ways to make a case smaller, one a file.

A reduction lists edits of a case and applies any subset of them; it never runs the target. The
reducer chooses the subsets. `ordered` edits make sense from the first one on only (drop the last
node, the last two, ...): those are searched by halving, of the others any may stay unmade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tcdebug.minifier.cases.case import Case


class CaseReduction(Protocol):
    """One way to make a case smaller. An edit is named by a string that the case gives meaning."""

    @property
    def name(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    def edits(self, case: Case) -> list[str]:
        """The edits that can be made, the most promising first."""
        ...

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with these edits made, None where that is not a case."""
        ...
