"""Finds the unit of AOTAutograd at fault, if AOTAutograd is the layer at fault.

The search replaces everything after AOTAutograd by torch's backend `aot_eager`. All decisions are
then AOTAutograd's, and a run takes only as long as a trace. Finally, the backend that failed runs
with the units found switched off, and must pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault, Verdict
from tcdebug.minifier.cases.layer_names import DECOMPOSITIONS
from tcdebug.minifier.cases.outcome import Kind, Outcome

ALONE = "AOTAutograd alone"
"""The purpose of a run with AOTAutograd and nothing after it."""


class Askable(Protocol):
    """A candidate whose outcome can be asked for."""

    def ask(self, toggles: Toggles, purpose: str) -> Outcome: ...


@dataclass(frozen=True)
class AutogradFinding:
    """The faults within AOTAutograd, empty if none is found, and notes for the report."""

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def find_autograd_units(
    asked: Askable,
    base: Toggles,
    failure: Outcome,
    bisected: Callable[[Outcome, Toggles], Verdict],
) -> AutogradFinding:
    """Bisect the decisions of AOTAutograd, given that it is the layer at fault.

    `failure` is how the candidate fails under `base`. `bisected` bisects a failure under toggles.
    Raises BudgetUsed.
    """
    toggles = base.without(off=[DECOMPOSITIONS])
    alone = asked.ask(toggles, ALONE)
    if not alone.failed or not alone.decisions:
        return AutogradFinding()
    verdict = bisected(alone, toggles)
    if verdict.core:
        return AutogradFinding(notes=("no unit of AOTAutograd is at fault",))
    if not verdict.confirmed:
        return AutogradFinding(notes=("no unit of AOTAutograd was confirmed to be at fault",))
    units = verdict.units()
    without = asked.ask(base.without(off=units), f"without {', '.join(units)}")
    if without.kind is not Kind.OK:
        note = f"AOTAutograd alone passes without {', '.join(units)}, but the backend does not"
        return AutogradFinding(notes=(note,))
    faults = tuple(replace(f, failure=failure, whole_unit=True) for f in verdict.faults)
    return AutogradFinding(faults)
