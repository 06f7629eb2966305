"""The reducer of graphs: all reductions of graphs, in their order."""

from __future__ import annotations

from dataclasses import replace

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction import CaseReduction
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.details.lift_constants import LiftConstants
from tcdebug.minifier.reduction.details.plain_inputs import PlainInputs
from tcdebug.minifier.reduction.details.shrink_dimensions import ShrinkDimensions
from tcdebug.minifier.reduction.details.shrink_shapes import ShrinkShapes
from tcdebug.minifier.reduction.details.simplify_arguments import SimplifyArguments
from tcdebug.minifier.reduction.details.simplify_dtypes import SimplifyDtypes
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.reduction.details.simplify_ops import HIGHEST, SimplifyOps
from tcdebug.minifier.reduction.details.simplify_strides import SimplifyStrides
from tcdebug.minifier.reduction.details.static_shapes import StaticShapes
from tcdebug.minifier.reduction.loop import ReductionLoop, Reductions
from tcdebug.minifier.reduction.measure import measure
from tcdebug.minifier.reduction.operators.bypass_nodes import BypassNodes
from tcdebug.minifier.reduction.operators.cut_nodes import CutNodes
from tcdebug.minifier.reduction.operators.drop_outputs import DropOutputs
from tcdebug.minifier.reduction.operators.drop_regions import DropRegions
from tcdebug.minifier.reduction.operators.inline_subgraphs import InlineSubgraphs
from tcdebug.minifier.reduction.operators.launch_arguments import launch_arguments
from tcdebug.minifier.reduction.operators.surgery import NodeValues, node_values
from tcdebug.minifier.reduction.operators.transforms import is_balanced, is_well_formed
from tcdebug.minifier.reduction.operators.truncate import Truncate
from tcdebug.minifier.search import reducing

OPERATORS: tuple[CaseReduction, ...] = (
    PlainInputs(),
    Truncate(),
    CutNodes(),
    DropOutputs(),
    BypassNodes(),
    DropRegions(),
    InlineSubgraphs(),
)
"""Reductions that remove operators, the biggest steps first, on plain tensors if possible."""

DETAILS: tuple[CaseReduction, ...] = (
    PlainInputs(),
    StaticShapes(),
    LiftConstants(),
    DropGradients(),
    SimplifyStrides(),
    SimplifyDtypes(),
    SimplifyInputs("noise"),
    ShrinkShapes(),
    ShrinkDimensions(),
    SimplifyInputs("ones"),
    SimplifyInputs("zeros"),
    SimplifyInputs("arange"),
    SimplifyArguments(),
    *(SimplifyOps(rung) for rung in range(HIGHEST + 1)),
)
"""Reductions of the remaining operators and of the inputs."""

REDUCTIONS = (*OPERATORS, *DETAILS)

Interesting = reducing.Interesting[Case]

GRAPHS = Reductions(
    coarse=OPERATORS,
    fine=DETAILS,
    measure=measure,
    skeleton=lambda case: [node.target for node in case.calls],
    is_valid=lambda case: is_well_formed(case.graph),
)
"""The reductions of a graph. Those of operators run again if the operators have changed."""

LEAKING = replace(GRAPHS, is_valid=lambda case: is_balanced(case.graph))
"""The reductions of a graph in which a value outlives its transform."""


class Reducer(ReductionLoop[Case]):
    """The search for a smaller case that is still interesting."""

    def __init__(self, case: Case, log: EventLog, values_of: NodeValues = node_values) -> None:
        reductions = GRAPHS if is_well_formed(case.graph) else LEAKING
        coarse = (
            replace(r, values_of=values_of) if isinstance(r, CutNodes) else r
            for r in reductions.coarse
        )
        reductions = replace(reductions, coarse=tuple(coarse))
        super().__init__(case, _keeping_launches(case, reductions), log)


def _keeping_launches(case: Case, reductions: Reductions[Case]) -> Reductions[Case]:
    """Return the reductions without edits after which a Triton kernel might read other memory."""
    given = launch_arguments(case)
    if given is None:
        return reductions

    def is_valid(candidate: Case) -> bool:
        return reductions.is_valid(candidate) and given.hold_for(candidate)

    return replace(reductions, is_valid=is_valid)
