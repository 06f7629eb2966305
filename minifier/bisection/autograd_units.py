"""The unit of AOTAutograd at fault, where the layer at fault is AOTAutograd.

AOTAutograd's units are asked where torch's backend `aot_eager` stands in for all that comes after
it: what is decided there is AOTAutograd's, and a run costs a trace. What is found is then switched
off under the backend that failed, which has to pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault, Verdict
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.targets.ladder import DECOMPOSITIONS


class Askable(Protocol):
    """What can be asked about a candidate."""

    def ask(self, toggles: Toggles, purpose: str) -> Outcome: ...


@dataclass(frozen=True)
class AutogradFinding:
    """The faults within AOTAutograd, none where they are not found; what there is to say."""

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def find_autograd_units(
    asked: Askable,
    base: Toggles,
    failure: Outcome,
    bisected: Callable[[Outcome, Toggles], Verdict],
) -> AutogradFinding:
    """Bisect the decisions of AOTAutograd, given that it is the layer at fault.

    `failure` is how it fails under `base`; `bisected` bisects a failure under toggles. Raises
    BudgetUsed.
    """
    toggles = base.without(off=[DECOMPOSITIONS])
    alone = asked.ask(toggles, "AOTAutograd alone")
    if not alone.failed or not alone.decisions:
        return AutogradFinding()
    verdict = bisected(alone, toggles)
    if verdict.core:
        return AutogradFinding(notes=("no unit of AOTAutograd is at fault",))
    if not verdict.confirmed:
        return AutogradFinding(notes=("which unit of AOTAutograd is at fault was not confirmed",))
    units = verdict.units()
    without = asked.ask(base.without(off=units), f"without {', '.join(units)}")
    if without.kind is not Kind.OK:
        note = f"AOTAutograd alone passes without {', '.join(units)}, the backend does not"
        return AutogradFinding(notes=(note,))
    faults = tuple(replace(f, failure=failure, whole_unit=True) for f in verdict.faults)
    return AutogradFinding(faults)
