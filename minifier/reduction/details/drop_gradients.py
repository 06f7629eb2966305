"""Inputs that no gradient is asked of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.cases.case import Case


@dataclass(frozen=True)
class DropGradients:
    """Any subset of the inputs that require gradients."""

    name: str = "drop_gradients"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The inputs that require gradients."""
        return [
            i.name
            for i in case.inputs
            if isinstance(i.value, torch.Tensor) and i.value.requires_grad
        ]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with these inputs as plain data."""
        changed = {
            i.name: replace(i, value=i.value.detach()) for i in case.inputs if i.name in edits
        }
        return case.with_inputs(changed)
