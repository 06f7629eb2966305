"""Make symbolic sizes static."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcdebug.minifier.cases.case import Case


@dataclass(frozen=True)
class StaticShapes:
    """Make any subset of the inputs with dynamic dimensions static."""

    name: str = "static_shapes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the inputs with dynamic dimensions."""
        return [i.name for i in case.inputs if i.dynamic]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case in which these inputs have static sizes."""
        changed = {i.name: replace(i, dynamic=()) for i in case.inputs if i.name in edits}
        return case.with_inputs(changed)
