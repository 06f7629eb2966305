"""Make inputs contiguous leaves of autograd with their own memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details.related_inputs import groups, groups_by_first
from tcdebug.minifier.reduction.details.simplify_inputs import make


@dataclass(frozen=True)
class SimplifyStrides:
    """Simplify any subset of the inputs that are strided, expanded, offset or views.

    Inputs that share memory are one edit. Afterwards each has its own memory.
    """

    name: str = "simplify_strides"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the inputs with an unusual layout; of inputs that share memory, the first."""
        shared = groups(case)
        alone = [i.name for i in case.inputs if i.name not in shared and is_strided(i.value)]
        return [*groups_by_first(case), *alone]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case in which these inputs are contiguous."""
        shared = groups_by_first(case)
        chosen = {name for first in edits for name in shared.get(first, [first])}
        return case.with_inputs({i.name: _contiguous(i) for i in case.inputs if i.name in chosen})


def is_strided(value: object) -> bool:
    """Return whether a tensor differs in layout from a new tensor, or is not a leaf."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    if is_wrapper(value):
        return False
    computed = value.requires_grad and not value.is_leaf
    larger = value.untyped_storage().nbytes() != value.numel() * value.element_size()
    return computed or larger or not value.is_contiguous() or value.is_conj() or value.is_neg()


def _contiguous(spec: CaseInput) -> CaseInput:
    old = spec.value
    new = old.detach().resolve_conj().resolve_neg()
    new = new.clone(memory_format=torch.contiguous_format)
    if isinstance(old, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    new.requires_grad_(old.requires_grad)
    recipe = spec.recipe
    if recipe is not None and old.numel() != old.untyped_storage().nbytes() // old.itemsize:
        recipe = None  # it fills the whole memory, of which this is a part
    return replace(spec, value=new if recipe is None else make(recipe, new), recipe=recipe)
