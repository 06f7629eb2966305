"""What smaller means. Every reduction makes one part of the measure smaller, and none before it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tcdebug.minifier.cases.case import Case, flatten
from tcdebug.minifier.reduction.details import simplify_arguments, simplify_dtypes, simplify_ops
from tcdebug.minifier.reduction.details.related_inputs import groups
from tcdebug.minifier.reduction.details.simplify_inputs import simplicity
from tcdebug.minifier.reduction.details.simplify_strides import is_strided


class Measure(NamedTuple):
    """The parts, the one that counts most first."""

    nodes: int
    outputs: int
    dynamic: int
    """Inputs with symbolic sizes."""
    constants: int
    """Tensors that the graph reads from its module."""
    inputs: int
    gradients: int
    operators: int
    """How far they are from the simplest ones."""
    arguments: int
    strided: int
    """Inputs that are not laid out in the usual way, share memory, or are no leaves."""
    elements: int
    """Of all inputs, and the integers in the graph, many of which are sizes."""
    dtypes: int
    values: int
    """How far they are from ones and zeros."""


def measure(case: Case) -> Measure:
    """How large a case is."""
    related = groups(case)
    tensors = [i for i in case.inputs if isinstance(i.value, torch.Tensor)]
    constants = [v for v in case.attributes().values() if isinstance(v, torch.Tensor)]
    literals = [v for n in case.calls for v in flatten([n.args, dict(n.kwargs)])]
    return Measure(
        nodes=case.size,
        outputs=len(case.graph.output_node().all_input_nodes),
        dynamic=sum(1 for i in case.inputs if i.dynamic),
        constants=len(constants),
        inputs=len(case.inputs),
        gradients=sum(1 for i in tensors if i.value.requires_grad),
        operators=sum(map(simplify_ops.complexity, case.calls)),
        arguments=sum(map(simplify_arguments.length, case.calls)),
        strided=sum(1 for i in tensors if i.name in related or is_strided(i.value)),
        elements=sum(i.value.numel() for i in tensors)
        + sum(abs(v) for v in literals if isinstance(v, int)),
        dtypes=sum(simplify_dtypes.complexity(i.value.dtype) for i in tensors)
        + sum(map(simplify_dtypes.named_complexity, case.calls)),
        values=sum(simplicity(i.recipe) for i in tensors),
    )
