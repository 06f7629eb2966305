"""Makes a failing case small: applies every reduction in turn until none helps.

The reducer holds the smallest case so far. Every candidate goes through `interesting`, so no
progress is lost when the budget runs out or the user interrupts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.events.search_events import MinifyStep
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.reduction import CaseReduction
from tcdebug.minifier.reduction.details.drop_gradients import DropGradients
from tcdebug.minifier.reduction.details.lift_constants import LiftConstants
from tcdebug.minifier.reduction.details.shrink_dimensions import ShrinkDimensions
from tcdebug.minifier.reduction.details.shrink_shapes import ShrinkShapes
from tcdebug.minifier.reduction.details.simplify_arguments import SimplifyArguments
from tcdebug.minifier.reduction.details.simplify_dtypes import SimplifyDtypes
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.reduction.details.simplify_ops import HIGHEST, SimplifyOps
from tcdebug.minifier.reduction.details.simplify_strides import SimplifyStrides
from tcdebug.minifier.reduction.details.static_shapes import StaticShapes
from tcdebug.minifier.reduction.measure import Measure, measure
from tcdebug.minifier.reduction.operators.bypass_nodes import BypassNodes
from tcdebug.minifier.reduction.operators.cut_nodes import CutNodes
from tcdebug.minifier.reduction.operators.drop_outputs import DropOutputs
from tcdebug.minifier.reduction.operators.drop_regions import DropRegions
from tcdebug.minifier.reduction.operators.inline_subgraphs import InlineSubgraphs
from tcdebug.minifier.reduction.operators.transforms import is_well_formed
from tcdebug.minifier.reduction.operators.truncate import Truncate
from tcdebug.minifier.search import reducing
from tcdebug.minifier.search.algorithms import first_bad, minimal_subset

OPERATORS: tuple[CaseReduction, ...] = (
    Truncate(),
    CutNodes(),
    DropOutputs(),
    BypassNodes(),
    DropRegions(),
    InlineSubgraphs(),
)
"""Reductions that remove operators, the biggest steps first."""

DETAILS: tuple[CaseReduction, ...] = (
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


@dataclass(frozen=True)
class _SizedCase:
    """A case with its measure."""

    case: Case

    @cached_property
    def measure(self) -> Measure:
        """The size of the case."""
        return measure(self.case)


class Reducer:
    """The search for a smaller case that is still interesting."""

    def __init__(self, case: Case, log: EventLog) -> None:
        self._best = _SizedCase(case)
        self._log = log
        self._answers = {case.key: True}
        self._left: list[CaseReduction] = []
        self._tried: Sequence[object] | None = None
        self._before = ""
        self._edits: dict[tuple[CaseReduction, str], list[str]] = {}
        self._made: dict[tuple[CaseReduction, str, tuple[str, ...]], _SizedCase | None] = {}

    @property
    def best(self) -> Case:
        """The smallest case so far."""
        return self._best.case

    def run(self, interesting: Interesting) -> Case:
        """Reduce until no reduction changes anything, and return the smallest case found."""
        while self.step(interesting):
            pass
        return self.best

    def step(self, interesting: Interesting) -> bool:
        """Apply the next reduction. Return False once no reduction changes anything."""
        reduction = self._next()
        if reduction is not None:
            self.reduce(reduction, interesting)
        return reduction is not None

    def rehearsal(self) -> Reducer:
        """Return a reducer in the same state that logs nothing.

        The two share their caches of edits and candidates, but not their answers.
        """
        other = copy(self)
        other._log = EventLog(None)
        other._answers = dict(self._answers)
        other._left = list(self._left)
        return other

    def forget(self) -> None:
        """Drop everything derived from cases other than the best."""
        here = self.best.key
        self._edits = {k: v for k, v in self._edits.items() if k[1] == here}
        self._made = {k: v for k, v in self._made.items() if k[1] == here}

    def _next(self) -> CaseReduction | None:
        """Return the reduction whose turn it is; None at the end.

        Reductions of operators run again if the operators have changed, but not after changes of
        values or sizes. The search ends because every step lowers the measure.
        """
        if not self._left:
            if self.best.key == self._before:
                return None
            operators = [n.target for n in self.best.calls]
            again = DETAILS if operators == self._tried else OPERATORS
            self._before = self.best.key if again is DETAILS else ""
            self._tried = operators
            self._left = list(again)
        return self._left.pop(0)

    def reduce(self, reduction: CaseReduction, interesting: Interesting) -> None:
        """Apply as many edits of one reduction as possible while the failure persists."""
        case = self.best

        def keep(edits: Sequence[str]) -> bool:
            return self._keep(reduction, case, edits, interesting)

        edits = self._edits_of(reduction, case)
        if not edits or keep(edits):
            return
        if reduction.ordered:
            first_bad(0, len(edits), lambda n: not keep(edits[:n]))
            return

        def survives(unapplied: Sequence[str]) -> bool:
            left_out = set(unapplied)
            return keep([e for e in edits if e not in left_out])

        minimal_subset(edits[::-1], survives)

    def _keep(
        self, reduction: CaseReduction, case: Case, edits: Sequence[str], interesting: Interesting
    ) -> bool:
        """Try a set of edits, and keep the result if it is interesting and smaller."""
        candidate = self._candidate(reduction, case, edits)
        if candidate is None:
            return False
        key = candidate.case.key
        if key not in self._answers:
            self._answers[key] = interesting(candidate.case, reduction.name)
        if not self._answers[key]:
            return False
        if candidate.measure < self._best.measure:
            self._log.emit(MinifyStep(reduction.name, self.best.size, candidate.case.size))
            self._best = candidate
        return True

    def _edits_of(self, reduction: CaseReduction, case: Case) -> list[str]:
        key = reduction, case.key
        if key not in self._edits:
            try:
                self._edits[key] = reduction.edits(case)
            except Exception as error:
                self._leave_out(reduction, error)
                self._edits[key] = []
        return self._edits[key]

    def _candidate(
        self, reduction: CaseReduction, case: Case, edits: Sequence[str]
    ) -> _SizedCase | None:
        key = reduction, case.key, tuple(edits)
        if key not in self._made:
            made = self._applied(reduction, case, edits) if edits else case
            self._made[key] = None if made is None else _SizedCase(made)
        return self._made[key]

    def _applied(
        self, reduction: CaseReduction, case: Case, edits: Sequence[str]
    ) -> Case | None:
        """Return the case with edits applied; None if it is malformed or the edits fail."""
        try:
            made = reduction.apply(case, edits)
            return made if made is not None and is_well_formed(made.graph) else None
        except Exception as error:
            self._leave_out(reduction, error)
            return None

    def _leave_out(self, reduction: CaseReduction, error: Exception) -> None:
        """Log that an exception in a reduction left its edits untried."""
        reason = f"{type(error).__name__}: {error}"
        self._log.emit(Fallback(f"edits of {reduction.name} are left out", reason[:2000]))
