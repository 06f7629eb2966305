"""Finds the unit of AOTAutograd at fault, if AOTAutograd is the layer at fault.

The search replaces everything after AOTAutograd by torch's backend `aot_eager`. All decisions are
then AOTAutograd's, and a run takes only as long as a trace. Finally, the backend that failed runs
with the units found switched off. If it fails in the same way, its own units are searched too, and
it must pass without all of them.

If it fails with all units off, autograd records the operators of forward in place of AOTAutograd's
backward. A pass says that the fault is in what AOTAutograd makes for gradients. For a wrong value
the first stage whose values differ says more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault, Verdict
from tcdebug.minifier.bisection.certainty import CONFIRMING_RUNS, Repeatable
from tcdebug.minifier.cases.layer_names import AUTOGRAD_BACKWARD, DECOMPOSITIONS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import passes_needed

ALONE = "AOTAutograd alone"
"""The purpose of a run with AOTAutograd and nothing after it."""
ONE_NODE = (
    "it passes if autograd records the operators of the traced graph: what AOTAutograd makes for "
    "gradients is at fault, which is one node of autograd, with a backward of its own"
)
"""A note on a failure that goes away with AUTOGRAD_BACKWARD off."""


@dataclass(frozen=True)
class AutogradFinding:
    """The faults within AOTAutograd, empty if none is found, and notes for the report."""

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def find_autograd_units(
    asked: Repeatable,
    base: Toggles,
    failure: Outcome,
    bisected: Callable[[Outcome, Toggles], Verdict],
    confidence: float,
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
        if _is_in_backward(asked, base, alone, confidence):
            decision = Decision(AUTOGRAD_BACKWARD, AUTOGRAD_BACKWARD, "", 0, True)
            return AutogradFinding((Fault(failure, (decision,), whole_unit=True),), (ONE_NODE,))
        return AutogradFinding(notes=("no unit of AOTAutograd is at fault",))
    if not verdict.confirmed:
        return AutogradFinding(notes=("no unit of AOTAutograd was confirmed to be at fault",))
    units = verdict.units()
    toggles = base.without(off=units)
    without = asked.ask(toggles, f"without {', '.join(units)}")
    behind: tuple[Fault, ...] = ()
    if without.kind is not Kind.OK:
        if failure.same_bug(without):
            behind = _same_fault_behind(asked, base, bisected(without, toggles))
        if not behind:
            note = f"AOTAutograd alone passes without {', '.join(units)}, but the backend does not"
            return AutogradFinding(notes=(note,))
    faults = tuple(replace(f, failure=failure, whole_unit=True) for f in verdict.faults)
    return AutogradFinding((*faults, *(replace(f, failure=failure) for f in behind)))


def _same_fault_behind(asked: Repeatable, base: Toggles, verdict: Verdict) -> tuple[Fault, ...]:
    """Return the faults of the backend, which fails in the same way without those of AOTAutograd.

    Both may apply the same formula: a decomposition of torch, and a decomposition or a lowering of
    the backend. Without the units of the backend alone, it must fail.
    """
    if not verdict.confirmed:
        return ()
    units = verdict.units()
    alone = asked.ask(base.without(off=units), f"without {', '.join(units)}")
    return verdict.faults if alone.failed else ()


def _is_in_backward(asked: Repeatable, base: Toggles, alone: Outcome, confidence: float) -> bool:
    """Return whether it passes without AOTAutograd's backward, alone and with the backend."""
    if alone.kind is Kind.WRONG:
        return False
    toggles = base.without(off=[DECOMPOSITIONS])
    passes = passes_needed(asked.rate(toggles, alone, CONFIRMING_RUNS), 2, confidence)
    if passes is None:
        return False
    asked.require_passes(passes)
    return all(
        asked.ask(without, purpose).kind is Kind.OK
        for without, purpose in (
            (toggles.without(off=[AUTOGRAD_BACKWARD]), f"{ALONE}, without its backward"),
            (base.without(off=[AUTOGRAD_BACKWARD]), "without AOTAutograd's backward"),
        )
    )
