"""Make a failing case small: every reduction in turn, until none helps.

The reducer owns the smallest case so far. Every candidate goes through `interesting`, so nothing
that was found is lost when the budget ends or the user interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import MinifyStep
from tcdebug.minifier.case import Case
from tcdebug.minifier.measure import measure
from tcdebug.minifier.reductions import Reduction
from tcdebug.minifier.reductions.bypass_nodes import BypassNodes
from tcdebug.minifier.reductions.cut_nodes import CutNodes
from tcdebug.minifier.reductions.drop_gradients import DropGradients
from tcdebug.minifier.reductions.drop_outputs import DropOutputs
from tcdebug.minifier.reductions.drop_regions import DropRegions
from tcdebug.minifier.reductions.inline_subgraphs import InlineSubgraphs
from tcdebug.minifier.reductions.lift_constants import LiftConstants
from tcdebug.minifier.reductions.shrink_dimensions import ShrinkDimensions
from tcdebug.minifier.reductions.shrink_shapes import ShrinkShapes
from tcdebug.minifier.reductions.simplify_arguments import SimplifyArguments
from tcdebug.minifier.reductions.simplify_dtypes import SimplifyDtypes
from tcdebug.minifier.reductions.simplify_inputs import SimplifyInputs
from tcdebug.minifier.reductions.simplify_ops import HIGHEST, SimplifyOps
from tcdebug.minifier.reductions.simplify_strides import SimplifyStrides
from tcdebug.minifier.reductions.static_shapes import StaticShapes
from tcdebug.minifier.reductions.truncate import Truncate
from tcdebug.minifier.search import first_bad, minimal_subset

OPERATORS: tuple[Reduction, ...] = (
    Truncate(),
    CutNodes(),
    DropOutputs(),
    BypassNodes(),
    DropRegions(),
    InlineSubgraphs(),
)
"""What leaves operators out, the biggest steps first."""

DETAILS: tuple[Reduction, ...] = (
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
"""What is done with the operators that are left, and with the inputs."""

REDUCTIONS = (*OPERATORS, *DETAILS)

Interesting = Callable[[Case, str], bool]


class Reducer:
    """The search for a smaller case that is still interesting."""

    def __init__(self, case: Case, interesting: Interesting, log: EventLog) -> None:
        self.best = case
        self._interesting = interesting
        self._log = log
        self._answers = {case.key: True}

    def run(self) -> Case:
        """Reduce until no reduction changes anything; the smallest case found.

        Operators are looked at again when they have changed, but not for other values or sizes.
        It comes to an end, as every step makes the measure smaller.
        """
        before, tried = "", None
        while self.best.key != before:
            operators = [n.target for n in self.best.calls]
            again = DETAILS if operators == tried else OPERATORS
            before = self.best.key if again is DETAILS else ""
            tried = operators
            for reduction in again:
                self.reduce(reduction)
        return self.best

    def reduce(self, reduction: Reduction) -> None:
        """Apply as many edits of one reduction as the failure survives."""
        case = self.best
        edits = reduction.edits(case)
        if not edits or self._keep(reduction, case, edits):
            return
        if reduction.ordered:
            first_bad(0, len(edits), lambda n: not self._keep(reduction, case, edits[:n]))
            return

        def survives(unmade: Sequence[str]) -> bool:
            return self._keep(reduction, case, [e for e in edits if e not in unmade])

        minimal_subset(edits[::-1], survives)

    def _keep(self, reduction: Reduction, case: Case, edits: list[str]) -> bool:
        """Try a set of edits; the result is kept when it is interesting and smaller."""
        candidate = reduction.apply(case, edits) if edits else case
        if candidate is None:
            return False
        if candidate.key not in self._answers:
            self._answers[candidate.key] = self._interesting(candidate, reduction.name)
        if not self._answers[candidate.key]:
            return False
        if measure(candidate) < measure(self.best):
            self._log.emit(MinifyStep(reduction.name, self.best.size, candidate.size))
            self.best = candidate
        return True
