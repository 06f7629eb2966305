"""Replace recorded values by ones that can be written down: ones, zeros, a range, seeded noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.effects import overlaps
from tcdebug.minifier.cases.case import Case, CaseInput, Recipe
from tcdebug.minifier.cases.lineage import is_plain
from tcdebug.minifier.reduction.details.related_inputs import (
    group_lineage,
    groups,
    groups_by_first,
    has_one_dtype,
    rebuild,
)

SIMPLICITY = ("ones", "zeros", "arange", "randint", "randn")
"""The kinds of recipes, the simplest first."""
STORED = len(SIMPLICITY)


@dataclass(frozen=True)
class SimplifyInputs:
    """Simplify any subset of the inputs whose values are recorded or have a less simple recipe.

    Inputs that share memory are one edit. Its recipe fills the whole memory.
    """

    kind: str = "noise"
    """The new values: ones, zeros, arange or noise."""
    name: str = "simplify_inputs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the tensors whose values would become simpler."""
        found: list[str] = []
        related, memories = groups(case), _memories(case)
        for position, spec in enumerate(case.inputs):
            value = memories.get(spec.name, spec.value)
            shared = spec.name in related and spec.name not in memories
            if isinstance(value, torch.Tensor) and not shared:
                recipe = recipe_for(value, position, self.kind)
                if recipe is not None and simplicity(recipe) < simplicity(spec.recipe):
                    found.append(spec.name)
        return found

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with these inputs filled by a recipe, in the same layout."""
        changed: dict[str, CaseInput] = {}
        related, memories = groups(case), _memories(case)
        for position, spec in enumerate(case.inputs):
            if spec.name not in edits:
                continue
            recipe = recipe_for(memories.get(spec.name, spec.value), position, self.kind)
            if recipe is None:
                return None
            if spec.name in related:
                changed |= _by_recipe(case, related[spec.name], recipe)
            else:
                changed[spec.name] = replace(spec, value=make(recipe, spec.value), recipe=recipe)
        return case.with_inputs(changed)


def _memories(case: Case) -> dict[str, torch.Tensor]:
    """Return the memory of each group that has a single dtype, by the group's first input."""
    found: dict[str, torch.Tensor] = {}
    for first, names in groups_by_first(case).items():
        family = group_lineage(case, names)
        if has_one_dtype(family):
            found[first] = next(m for m in family.memories if m is not None)
    return found


def _by_recipe(case: Case, names: Sequence[str], recipe: Recipe) -> dict[str, CaseInput]:
    made = rebuild(case, names, change=lambda memory: make(recipe, memory))
    return {name: replace(spec, recipe=recipe) for name, spec in made.items()}


def simplicity(recipe: Recipe | None) -> int:
    """Return the rank of an input's recipe in `SIMPLICITY`; stored data comes last."""
    return STORED if recipe is None else SIMPLICITY.index(recipe.kind)


def recipe_for(value: torch.Tensor, seed: int, kind: str = "noise") -> Recipe | None:
    """Return a recipe for a tensor; None if there is none. Integers keep the tensor's own range."""
    if not is_plain(value):
        return None
    if value.numel() == 0:
        return Recipe("zeros")
    if value.is_floating_point() or value.dtype.is_complex:
        low, high, noise = 0, value.numel(), Recipe("randn", seed)
    else:
        wide = value.to(torch.int64)  # some dtypes do not implement min
        low, high = int(wide.min()), int(wide.max()) + 1
        if value.dtype == torch.bool:
            low, high = 0, 2
        noise = Recipe("randint", seed, low, high)
    match kind:
        case "ones" if low <= 1 < high or noise.kind == "randn":
            return Recipe(kind)
        case "ones":
            return None
        case "zeros":
            return Recipe(kind)
        case "arange":
            return Recipe(kind, low=low, high=high)
    return noise


def make(recipe: Recipe, like: torch.Tensor) -> torch.Tensor:
    """Create a tensor from a recipe, with the size, strides and dtype of another.

    A non-leaf tensor stays a non-leaf. The repro script uses the same calls; see `input_text`.
    """
    generator = torch.Generator().manual_seed(recipe.seed)
    size = tuple(like.shape)
    match recipe.kind:
        case "randn":
            noise = torch.complex64 if like.dtype.is_complex else torch.float32
            values = torch.randn(size, generator=generator, dtype=noise)
        case "randint":
            values = torch.randint(recipe.low, recipe.high, size, generator=generator)
        case "arange":
            numbers = torch.arange(like.numel())
            values = (numbers % (recipe.high - recipe.low) + recipe.low).view(size)
        case "ones":
            values = torch.ones(size)
        case _:
            values = torch.zeros(size)
    result = values.to(like.device, like.dtype)
    if not overlaps(like):
        result = torch.empty_strided(
            size, like.stride(), dtype=like.dtype, device=like.device
        ).copy_(result)
    if isinstance(like, torch.nn.Parameter):
        return torch.nn.Parameter(result, requires_grad=like.requires_grad)
    result.requires_grad_(like.requires_grad)
    return result if like.is_leaf or overlaps(like) else result.clone()
