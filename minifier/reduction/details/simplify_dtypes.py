"""Replace other floats by float32 and other integers by int64, in inputs and in calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput, flatten
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details.related_inputs import (
    group_lineage,
    groups,
    groups_by_first,
    has_one_dtype,
    rebuild,
)
from tcdebug.minifier.reduction.details.simplify_inputs import make
from tcdebug.minifier.reduction.operators.regions import changes_state
from tcdebug.minifier.reduction.operators.surgery import editable
from tcdebug.minifier.reduction.trial import can_run

CASTS = {"half": "float", "bfloat16": "float", "double": "float", "int": "long", "short": "long"}
"""Methods that convert the dtype, and their simpler counterparts."""


@dataclass(frozen=True)
class SimplifyDtypes:
    """Simplify any subset of the inputs and calls. Usually they must change together."""

    name: str = "simplify_dtypes"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the inputs and calls that can have a simpler dtype."""
        shared, first = groups(case), groups_by_first(case)
        inputs = [
            i.name
            for i in case.inputs
            if complexity(getattr(i.value, "dtype", None))
            and not is_wrapper(i.value)
            and (i.name not in shared or _can_change(case, first.get(i.name)))
        ]
        return inputs + [n.name for n in case.calls if named_complexity(n)]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the case with these dtypes simplified; None if eager does not accept them."""
        graph, named = editable(case)
        for node in case.calls:
            if node.name in edits and not changes_state(node):
                copy = named[node.name]
                copy.args = fx.node.map_aggregate(copy.args, _simpler)
                copy.kwargs = fx.node.map_aggregate(copy.kwargs, _simpler)
                if node.op == "call_method":
                    copy.target = CASTS.get(str(node.target), node.target)
        shared = groups_by_first(case)
        changed: dict[str, CaseInput] = {}
        for spec in case.inputs:
            if spec.name in edits and spec.name in shared:
                changed |= rebuild(case, shared[spec.name], change=_converted_memory)
            elif spec.name in edits:
                changed[spec.name] = _converted(spec)
        inputs = [changed.get(i.name, i) for i in case.inputs]
        candidate = case.with_graph(graph, inputs)
        return candidate if can_run(candidate, case) else None


def simpler(dtype: torch.dtype) -> torch.dtype:
    """Return the next simpler dtype; float32, int64 and bool stay as they are."""
    if dtype == torch.complex128:
        return torch.complex64
    if dtype.is_complex or dtype.is_floating_point:
        return torch.float32
    return dtype if dtype == torch.bool else torch.int64


def complexity(dtype: object) -> int:
    """Return how many steps a dtype is away from the simplest of its kind."""
    steps = 0
    while isinstance(dtype, torch.dtype) and simpler(dtype) != dtype:
        dtype, steps = simpler(dtype), steps + 1
    return steps


def named_complexity(node: fx.Node) -> int:
    """Return the sum of `complexity` over the dtypes that a call names."""
    if changes_state(node):
        return 0
    cast = node.op == "call_method" and node.target in CASTS
    return cast + sum(map(complexity, flatten([node.args, dict(node.kwargs)])))


def _simpler(value: Any) -> Any:
    return simpler(value) if isinstance(value, torch.dtype) else value


def _can_change(case: Case, names: Sequence[str] | None) -> bool:
    """Return whether the dtype of a group can change. `names` are all of the group, or None."""
    return names is not None and has_one_dtype(group_lineage(case, names))


def _converted_memory(memory: torch.Tensor) -> torch.Tensor:
    dtype = simpler(memory.dtype)
    real = memory.dtype.is_complex and not dtype.is_complex
    return (memory.real if real else memory).to(dtype, copy=True)


def _converted(spec: CaseInput) -> CaseInput:
    old = spec.value
    plain = old.detach()
    dtype = simpler(plain.dtype)
    if plain.dtype.is_complex and not dtype.is_complex:
        plain = plain.real
    new = plain.to(dtype).requires_grad_(old.requires_grad)
    new = new if old.is_leaf else new.clone()
    if isinstance(old, torch.nn.Parameter):
        new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
    return replace(spec, value=new if spec.recipe is None else make(spec.recipe, new))
