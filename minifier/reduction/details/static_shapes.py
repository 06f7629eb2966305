"""Make symbolic sizes static, and drop what Dynamo knows of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcdebug.minifier.cases.case import Case


@dataclass(frozen=True)
class StaticShapes:
    """Make any subset of the inputs with dynamic dimensions or fixed addresses plain ones."""

    name: str = "static_shapes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the inputs with dynamic dimensions or fixed addresses."""
        return [i.name for i in case.inputs if i.dynamic or i.fixed]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case in which these inputs have static sizes and any address."""
        plain = (replace(i, dynamic=(), fixed=False) for i in case.inputs if i.name in edits)
        changed = {i.name: i for i in plain}
        return case.with_inputs(changed)
