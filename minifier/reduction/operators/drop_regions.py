"""Remove regions of no_grad, autocast, vmap or grad, and keep what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.reduction.operators.regions import function_name, regions
from tcdebug.minifier.reduction.operators.surgery import (
    editable,
    finish,
    leaves,
    remove_repeated,
    set_outputs,
)
from tcdebug.minifier.reduction.operators.transforms import (
    differentiated,
    outputs_like,
    remove_transform,
    transforms,
)


@dataclass(frozen=True)
class DropRegions:
    """Drop any subset of the regions. Each is named by the call at its start."""

    name: str = "drop_regions"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the regions, inner ones first."""
        return [start.name for start, _ in _droppable(case)]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph without the calls that start and end these regions."""
        graph, named = editable(case)
        remove_repeated(graph)
        wanted: set[str] = set()
        starts = [t.start.name for t in transforms(case.graph) or []]
        for name in starts:
            if name in edits:
                chosen = next(t for t in transforms(graph) or [] if t.start is named[name])
                wanted |= set(differentiated(graph, chosen))
                if not remove_transform(graph, chosen):
                    return None
                if not graph.output_node().all_input_nodes:  # it returned only derivatives
                    set_outputs(graph, outputs_like(case.graph, graph, leaves(graph)))
        for start, end in _droppable(case):
            if start.name not in edits or start.name in starts:
                continue
            graph.erase_node(named[end.name])
            if named[start.name].users:
                return None
            graph.erase_node(named[start.name])
        inputs = [_differentiable(i) if i.name in wanted else i for i in case.inputs]
        return finish(case, graph, inputs)


def _droppable(case: Case) -> list[tuple[fx.Node, fx.Node]]:
    """Return the regions except the dual levels of a jvp, which are dropped with it."""
    return [(s, e) for s, e in regions(case.graph) if function_name(s) != "_enter_dual_level"]


def _differentiable(spec: CaseInput) -> CaseInput:
    """Make an input require gradients, as the grad transform in the graph did."""
    value = spec.value
    fits = isinstance(value, torch.Tensor) and value.is_floating_point() and value.is_leaf
    if not fits or value._is_view() or value.requires_grad:
        return spec
    return replace(spec, value=value.detach().clone().requires_grad_())
