"""Make a failing case small: every reduction in turn, until none helps.

The reducer owns the smallest case so far. Every candidate goes through `interesting`, so nothing
that was found is lost when the budget ends or the user interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import MinifyStep
from tcdebug.minifier.case import Case
from tcdebug.minifier.reductions import Reduction
from tcdebug.minifier.reductions.bypass_nodes import BypassNodes
from tcdebug.minifier.reductions.cut_front import CutFront
from tcdebug.minifier.reductions.cut_nodes import CutNodes
from tcdebug.minifier.reductions.drop_gradients import DropGradients
from tcdebug.minifier.reductions.drop_outputs import DropOutputs
from tcdebug.minifier.reductions.drop_regions import DropRegions
from tcdebug.minifier.reductions.simplify_inputs import SimplifyInputs
from tcdebug.minifier.reductions.static_shapes import StaticShapes
from tcdebug.minifier.reductions.truncate import Truncate
from tcdebug.minifier.search import first_bad, minimal_subset

REDUCTIONS: tuple[Reduction, ...] = (
    Truncate(),
    CutFront(),
    DropOutputs(),
    CutNodes(),
    BypassNodes(),
    DropRegions(),
    StaticShapes(),
    DropGradients(),
    SimplifyInputs(),
)
"""The biggest and cheapest steps first."""

MOST_ROUNDS = 4

Interesting = Callable[[Case, str], bool]


class Reducer:
    """The search for a smaller case that is still interesting."""

    def __init__(self, case: Case, interesting: Interesting, log: EventLog) -> None:
        self.best = case
        self._interesting = interesting
        self._log = log

    def run(self) -> Case:
        """Reduce until a whole round changes nothing; the smallest case found."""
        for _ in range(MOST_ROUNDS):
            before = self.best.key
            for reduction in REDUCTIONS:
                self.reduce(reduction)
            if self.best.key == before:
                break
        return self.best

    def reduce(self, reduction: Reduction) -> None:
        """Apply as many edits of one reduction as the failure survives."""
        case = self.best
        edits = reduction.edits(case)
        if not edits:
            return
        if reduction.ordered:
            self._halve(reduction, case, edits)
        else:
            self._delta(reduction, case, edits)

    def _halve(self, reduction: Reduction, case: Case, edits: list[str]) -> None:
        """The most edits from the first on."""
        if self._keep(reduction, case, edits):
            return
        first_bad(0, len(edits), lambda n: not self._keep(reduction, case, edits[:n]))

    def _delta(self, reduction: Reduction, case: Case, edits: list[str]) -> None:
        """The fewest edits left unmade."""
        if self._keep(reduction, case, edits):
            return

        def survives(left: Sequence[str]) -> bool:
            return self._keep(reduction, case, [e for e in edits if e not in left])

        minimal_subset(edits, survives)

    def _keep(self, reduction: Reduction, case: Case, edits: list[str]) -> bool:
        """Try a set of edits; the result is kept when it is interesting and smaller."""
        candidate = reduction.apply(case, edits)
        if candidate is None or not self._interesting(candidate, reduction.name):
            return False
        if _measure(candidate) <= _measure(self.best):
            self._log.emit(MinifyStep(reduction.name, self.best.size, candidate.size))
            self.best = candidate
        return True


def _measure(case: Case) -> tuple[int, int, int, int]:
    """What smaller means: fewer nodes, then less stored data, gradients, inputs."""
    stored = sum(1 for i in case.inputs if i.recipe is None)
    gradients = sum(1 for i in case.inputs if getattr(i.value, "requires_grad", False))
    dynamic = sum(1 for i in case.inputs if i.dynamic)
    return case.size, dynamic, gradients + len(case.inputs), stored
