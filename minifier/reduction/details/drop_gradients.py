"""Drop the gradients of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import Member
from tcdebug.minifier.reduction.details.related_inputs import groups, groups_by_first, rebuild


@dataclass(frozen=True)
class DropGradients:
    """Stop any subset of the inputs from requiring gradients."""

    name: str = "drop_gradients"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the inputs that require gradients; of inputs that share memory, the first."""
        related = groups(case)
        requiring = [
            i.name
            for i in case.inputs
            if isinstance(i.value, torch.Tensor) and i.value.requires_grad
        ]
        named = [related[name][0] if name in related else name for name in requiring]
        return list(dict.fromkeys(named))

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case in which these inputs do not require gradients."""
        shared = groups_by_first(case)
        changed: dict[str, CaseInput] = {}
        for spec in case.inputs:
            if spec.name in edits and spec.name in shared:
                changed |= rebuild(case, shared[spec.name], edit=_without_gradients)
            elif spec.name in edits:
                changed[spec.name] = replace(spec, value=spec.value.detach())
        return case.with_inputs(changed)


def _without_gradients(member: Member) -> Member:
    return replace(member, requires_grad=False, leaf=True, creation="DEFAULT")
