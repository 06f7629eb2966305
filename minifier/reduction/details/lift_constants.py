"""Turn tensors that a graph contains into inputs, so that their values can be simplified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.reduction.operators.surgery import editable


@dataclass(frozen=True)
class LiftConstants:
    """Lift any subset of the tensors among the attributes of the module."""

    name: str = "lift_constants"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """Return the attributes that are tensors."""
        return [k for k, v in case.attributes().items() if isinstance(v, torch.Tensor)]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """Return the graph with these attributes as inputs."""
        graph, _ = editable(case)
        known = case.attributes()
        inputs = list(case.inputs)
        for target in edits:
            name = f"{target.replace('.', '_')}_value"
            first = next(n for n in graph.nodes if n.op != "placeholder")  # it may be erased below
            with graph.inserting_before(first):
                placeholder = graph.placeholder(name)
            placeholder.meta = {"example_value": known[target]}
            inputs.append(CaseInput(name, known[target]))
            for node in [n for n in graph.nodes if n.op == "get_attr" and n.target == target]:
                node.replace_all_uses_with(placeholder)
                graph.erase_node(node)
        return case.with_graph(graph, inputs)


def without_constants(case: Case) -> Case:
    """Return the case in which the tensors that its graph holds are inputs."""
    lifting = LiftConstants()
    edits = lifting.edits(case)
    return (lifting.apply(case, edits) or case) if edits else case
