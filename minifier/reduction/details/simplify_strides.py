"""Inputs that are laid out in the usual way, in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.cases.case import Case, Input
from tcdebug.minifier.reduction.details.simplify_inputs import make


@dataclass(frozen=True)
class SimplifyStrides:
    """Any subset of the inputs that are strided, expanded, offset, or parts of a larger tensor."""

    name: str = "simplify_strides"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The inputs that are laid out in another way."""
        return [i.name for i in case.inputs if is_strided(i.value)]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with these inputs contiguous."""
        return case.with_inputs({i.name: _contiguous(i) for i in case.inputs if i.name in edits})


def is_strided(value: object) -> bool:
    """Whether a tensor is laid out in another way than torch makes new ones."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return False
    larger = value.untyped_storage().nbytes() != value.numel() * value.element_size()
    return larger or not value.is_contiguous() or value.is_conj() or value.is_neg()


def _contiguous(spec: Input) -> Input:
    old = spec.value
    new = old.detach().resolve_conj().resolve_neg()
    new = new.clone(memory_format=torch.contiguous_format)
    if isinstance(old, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    new.requires_grad_(old.requires_grad)
    return replace(spec, value=new if spec.recipe is None else make(spec.recipe, new))
