"""Finds the unit of AOTAutograd, or the fake kernel, at fault if no unit of a backend is.

If AOTAutograd is the layer at fault, its units are searched. Torch's backend `aot_eager` replaces
everything after AOTAutograd, so all decisions are AOTAutograd's, and a run takes only as long as a
trace. Finally, the backend that failed runs with the units found switched off. If it fails in the
same way, its own units are searched too, and it must pass without all of them.

If it fails with all units off, autograd records the operators of forward in place of AOTAutograd's
backward. A pass says that the fault is in what AOTAutograd makes for gradients. For a wrong value
the first stage whose values differ says more.

If no unit is named, what the layer was told may be wrong: see `fake_kernels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Fault, Verdict
from tcdebug.minifier.bisection.certainty import Repeatable, confirming_runs
from tcdebug.minifier.bisection.fake_kernels import described, find_fake_kernels
from tcdebug.minifier.cases.layer_names import (
    AUTOGRAD,
    AUTOGRAD_BACKWARD,
    BACKEND,
    DECOMPOSITIONS,
)
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import passes_needed

TRUSTS_TRACES = (AUTOGRAD, DECOMPOSITIONS, BACKEND)
"""The layers that take sizes, strides and dtypes from a trace with fake tensors."""

Bisected = Callable[[Outcome, Toggles], Verdict]

ALONE = "AOTAutograd alone"
"""The purpose of a run with AOTAutograd and nothing after it."""
ONE_NODE = (
    "it passes if autograd records the traced operators themselves: at fault is the single node of "
    "autograd, with a backward of its own, that AOTAutograd puts in their place"
)
"""A note on a failure that goes away with AUTOGRAD_BACKWARD off."""
NOT_A_UNIT = (
    "it fails with all units of AOTAutograd off: at fault is a step of AOTAutograd that is not a "
    "unit"
)


@dataclass(frozen=True)
class AutogradFinding:
    """The faults within AOTAutograd, empty if none is found, and notes for the report."""

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def find_units_of_layer(
    layer: str,
    asked: Repeatable,
    base: Toggles,
    failure: Outcome,
    bisected: Bisected,
    confidence: float,
) -> AutogradFinding:
    """Find the units of AOTAutograd, or the fake kernels, at fault in one of `TRUSTS_TRACES`.

    `failure` is how the candidate fails under `base`. `bisected` bisects a failure under toggles.
    Raises BudgetUsed.
    """
    found = AutogradFinding()
    if layer == AUTOGRAD:
        asked.require_passes(1)  # the search itself decides what to repeat
        found = _find_autograd_units(asked, base, failure, bisected, confidence)
    if found.faults:
        return found
    wrong = find_fake_kernels(asked, base, failure, confidence)
    return AutogradFinding(wrong, (*found.notes, *map(described, wrong)))


def _find_autograd_units(
    asked: Repeatable, base: Toggles, failure: Outcome, bisected: Bisected, confidence: float
) -> AutogradFinding:
    """Bisect the decisions of AOTAutograd, given that it is the layer at fault."""
    toggles = base.without(off=[DECOMPOSITIONS])
    alone = asked.ask(toggles, ALONE)
    if not alone.failed or not alone.decisions:
        return AutogradFinding()
    verdict = bisected(alone, toggles)
    if verdict.core:
        if _is_in_backward(asked, base, alone, confidence):
            decision = Decision(AUTOGRAD_BACKWARD, AUTOGRAD_BACKWARD, "", 0, True)
            return AutogradFinding((Fault(failure, (decision,), whole_unit=True),), (ONE_NODE,))
        return AutogradFinding(notes=(NOT_A_UNIT,))
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
    passes = passes_needed(asked.rate(toggles, alone, confirming_runs(alone)), 2, confidence)
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
