"""A reduction: replaces inputs by ones if the failure does not need other values."""
# ruff: noqa: T201

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case, Recipe, from_captured
from tcdebug.minifier.cases.source import module_source
from tcdebug.minifier.reduction.details.simplify_inputs import make
from tcdebug.minifier.reduction.reducer import Reducer
from tcdebug.minifier.repros.inputs_text import input_text

ONES = Recipe("ones")


@dataclass(frozen=True)
class OnesInputs:
    """Any subset of the float inputs that are not ones yet."""

    name: str = "ones_inputs"
    ordered: bool = False

    def edits(self, case: Case) -> list[str]:
        """The float inputs that are not ones."""
        return [
            i.name
            for i in case.inputs
            if isinstance(i.value, torch.Tensor)
            and i.value.is_floating_point()
            and i.recipe != ONES
        ]

    def apply(self, case: Case, edits: Sequence[str]) -> Case | None:
        """The case with ones in these inputs, with the same layout."""
        return case.with_inputs(
            {
                i.name: replace(i, value=make(ONES, i.value), recipe=ONES)
                for i in case.inputs
                if i.name in edits
            }
        )


def captured(function, *values) -> Case:
    """The case of a function that Dynamo captures as one graph."""
    cases = []

    def backend(module, inputs):
        def call(*given):
            cases.append(from_captured(module, given))
            return module(*given)

        return call

    torch.compile(function, backend=backend)(*values)
    return cases[0]


def interesting(case: Case, purpose: str) -> bool:
    """Stands for a rerun that fails in the same way: here, some quotient is not finite."""
    (result,) = case.module(*case.values())
    return not bool(result.isfinite().all())


case = captured(lambda x, y: x / y, torch.randn(3), torch.tensor([1.0, 0.0, 2.0]))
reducer = Reducer(case, EventLog(None))
reducer.reduce(OnesInputs(), interesting)  # in the tree: a row of reducer.REDUCTIONS
print(module_source(reducer.best.module).text)
for spec in reducer.best.inputs:
    print(spec.name, "=", input_text(spec))
