"""Finds wrong fake kernels, if no unit of a layer that trusts them is at fault.

A wrong fake kernel misleads everything that compiles. One run corrects the results of all of them
(see `targets.autograd.fake_kernels`). If it passes, a second run corrects only those that were
found wrong. Of several, those that are not needed are left out, one by one.
"""

from __future__ import annotations

from dataclasses import replace

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.minifier.bisection.bisect import Fault
from tcdebug.minifier.bisection.certainty import Repeatable, confirming_runs
from tcdebug.minifier.cases.layer_names import FAKE_KERNELS
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.repeats import passes_needed


def find_fake_kernels(
    asked: Repeatable, base: Toggles, failure: Outcome, confidence: float
) -> tuple[Fault, ...]:
    """Return the wrong fake kernels without which it passes; empty if there are none.

    `failure` is how the candidate fails under `base`. The pass on which the answer rests is
    repeated as often as the failure rate requires. Raises BudgetUsed.
    """
    corrected = asked.ask(base.without(off=[FAKE_KERNELS]), "with all fake kernels corrected")
    wrong = {d.unit: d for d in corrected.decisions if belongs(d.unit, FAKE_KERNELS)}
    if corrected.kind is not Kind.OK or not wrong:
        return ()
    rate = asked.rate(base, failure, confirming_runs(failure))
    passes = passes_needed(rate, len(wrong), confidence)
    if passes is None:
        return ()
    asked.require_passes(passes)
    if not _passes(asked, base, wrong):
        return ()
    for unit in tuple(wrong):
        others = {name: decision for name, decision in wrong.items() if name != unit}
        if others and _passes(asked, base, others):
            wrong = others
    return tuple(
        Fault(failure, (replace(d, allowed=True),), whole_unit=True) for d in wrong.values()
    )


def described(fault: Fault) -> str:
    """Return a note on a wrong fake kernel."""
    operator = fault.unit.removeprefix(f"{FAKE_KERNELS}.")
    return (
        f"the fake kernel of {operator}, which compilers trust, gives {fault.decisions[0].subject}"
    )


def _passes(asked: Repeatable, base: Toggles, wrong: dict[str, Decision]) -> bool:
    """Return whether it passes with these fake kernels corrected."""
    purpose = f"corrected: {', '.join(wrong)}"
    return asked.ask(base.without(off=wrong), purpose).kind is Kind.OK
