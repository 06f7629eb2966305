"""The size of a case. Each reduction lowers one component and raises no more significant one."""

from __future__ import annotations

from typing import NamedTuple

import torch

from tcdebug.minifier.cases.case import Case, flatten
from tcdebug.minifier.cases.subclasses.parts import is_wrapper
from tcdebug.minifier.reduction.details import simplify_arguments, simplify_dtypes, simplify_ops
from tcdebug.minifier.reduction.details.related_inputs import groups
from tcdebug.minifier.reduction.details.simplify_inputs import simplicity
from tcdebug.minifier.reduction.details.simplify_strides import is_strided


class Measure(NamedTuple):
    """The components, the most significant first."""

    nodes: int
    outputs: int
    dynamic: int
    """The number of inputs with symbolic sizes or fixed addresses."""
    constants: int
    """The number of tensors that the graph reads from its module."""
    wrapped: int
    """The number of inputs that are made of other tensors."""
    inputs: int
    gradients: int
    operators: int
    """The total distance of the operators from the simplest ones."""
    arguments: int
    strided: int
    """The number of inputs that are not contiguous, share memory, or are not leaves."""
    elements: int
    """The elements of all inputs, plus the integers in the graph, many of which are sizes."""
    dtypes: int
    values: int
    """The total distance of the values from ones and zeros."""


def measure(case: Case) -> Measure:
    """Measure a case."""
    related = groups(case)
    tensors = [i for i in case.inputs if isinstance(i.value, torch.Tensor)]
    constants = [v for v in case.attributes().values() if isinstance(v, torch.Tensor)]
    literals = [v for n in case.calls for v in flatten([n.args, dict(n.kwargs)])]
    return Measure(
        nodes=case.size,
        outputs=len(case.graph.output_node().all_input_nodes),
        dynamic=sum(1 for i in case.inputs if i.dynamic or i.fixed),
        constants=len(constants),
        wrapped=sum(1 for i in tensors if is_wrapper(i.value)),
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
