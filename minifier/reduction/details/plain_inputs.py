"""Replace tensor subclasses by plain tensors, whose compile is simpler and needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details.simplify_inputs import make, recipe_for
from tcdebug.minifier.reduction.trial import can_run

SUBCLASSES = "tensor subclasses"


@dataclass(frozen=True)
class PlainInputs:
    """Replace all inputs that are made of other tensors. Few operators accept both kinds."""

    name: str = "plain_inputs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return one edit if there are such inputs."""
        return [SUBCLASSES] if any(is_wrapper(i.value) for i in case.inputs) else []

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with noise in plain tensors; None if eager cannot run it."""
        changed = {
            spec.name: _plain(spec, position)
            for position, spec in enumerate(case.inputs)
            if is_wrapper(spec.value)
        }
        candidate = case.with_inputs(changed)
        return candidate if can_run(candidate, case) else None


def _plain(spec: CaseInput, seed: int) -> CaseInput:
    """Return an input with a plain tensor of the same size: of a nested tensor, all its rows."""
    old: Any = spec.value
    like = old.values() if old.layout == torch.jagged else old
    new = torch.zeros(tuple(like.shape), dtype=old.dtype, device=old.device)
    if isinstance(old, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    new.requires_grad_(old.requires_grad)
    recipe = recipe_for(new, seed)
    return replace(spec, value=new if recipe is None else make(recipe, new), recipe=recipe)
