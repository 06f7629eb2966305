"""Inputs that no gradient is asked of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import Member
from tcdebug.minifier.reduction.details.related_inputs import firsts, groups, rebuilt


@dataclass(frozen=True)
class DropGradients:
    """Any subset of the inputs that require gradients."""

    name: str = "drop_gradients"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The inputs that require gradients, the first one of those that share memory."""
        related = groups(case)
        wanting = [
            i.name
            for i in case.inputs
            if isinstance(i.value, torch.Tensor) and i.value.requires_grad
        ]
        named = [related[name][0] if name in related else name for name in wanting]
        return list(dict.fromkeys(named))

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with these inputs as plain data."""
        shared = firsts(case)
        changed: dict[str, CaseInput] = {}
        for spec in case.inputs:
            if spec.name in edits and spec.name in shared:
                changed |= rebuilt(case, shared[spec.name], edit=_without_gradients)
            elif spec.name in edits:
                changed[spec.name] = replace(spec, value=spec.value.detach())
        return case.with_inputs(changed)


def _without_gradients(member: Member) -> Member:
    return replace(member, requires_grad=False, leaf=True, creation="DEFAULT")
