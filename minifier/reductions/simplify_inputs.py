"""Values that can be written down instead of stored: seeded noise, ones, a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.minifier.case import Case, Input, Recipe, overlaps


@dataclass(frozen=True)
class SimplifyInputs:
    """Any subset of the inputs whose values were recorded."""

    name: str = "simplify_inputs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The tensors without a recipe."""
        return [
            i.name for i in case.inputs if isinstance(i.value, torch.Tensor) and i.recipe is None
        ]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with seeded values of the same layout and range in these inputs."""
        changed: dict[str, Input] = {}
        for position, spec in enumerate(case.inputs):
            if spec.name not in edits:
                continue
            recipe = recipe_for(spec.value, position)
            if recipe is None:
                return None
            changed[spec.name] = replace(spec, value=make(recipe, spec.value), recipe=recipe)
        return case.with_inputs(changed)


def recipe_for(value: torch.Tensor, seed: int) -> Recipe | None:
    """Seeded values in the range of a tensor's own, None for what has no such recipe."""
    if value.layout != torch.strided or value.is_quantized or type(value) not in (
        torch.Tensor,
        torch.nn.Parameter,
    ):
        return None
    if value.dtype.is_complex or (value.is_floating_point() and value.element_size() == 1):
        return None
    if value.is_floating_point():
        return Recipe("randn", seed)
    if value.dtype == torch.bool:
        return Recipe("randint", seed, 0, 2)
    if value.numel() == 0:
        return Recipe("zeros")
    return Recipe("randint", seed, int(value.min()), int(value.max()) + 1)


def make(recipe: Recipe, like: torch.Tensor) -> torch.Tensor:
    """A tensor by a recipe, with the size, strides and dtype of another.

    The repro script makes it by the same calls: see `repro.input_text`.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    size = tuple(like.shape)
    match recipe.kind:
        case "randn":
            values = torch.randn(size, generator=generator)
        case "randint":
            values = torch.randint(recipe.low, recipe.high, size, generator=generator)
        case "ones":
            values = torch.ones(size)
        case _:
            values = torch.zeros(size)
    result = values.to(like.dtype)
    if not overlaps(like):
        result = torch.empty_strided(size, like.stride(), dtype=like.dtype).copy_(result)
    if isinstance(like, torch.nn.Parameter):
        return torch.nn.Parameter(result, requires_grad=like.requires_grad)
    return result.requires_grad_(like.requires_grad)
