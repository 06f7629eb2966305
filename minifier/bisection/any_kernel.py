"""Distinguishes a failure of a lowering from one that every kernel of a backend causes.

Without a lowering, the backend calls the operator as eager does. That also avoids what all kernels
have in common: for example, none of them computes a forward-mode derivative. If a script uses one
lowering only, it then passes without this lowering, although any other one would fail in its place.

The control is a run in which every operator is called as in eager, and a kernel copies each result,
and each input. A copy changes no value. If this run fails in the same way, kernels are at fault, or
what the backend was told of the inputs, not a unit.
"""

from __future__ import annotations

from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.bisection.bisect import LOWERING, Ask, Verdict
from tcdebug.minifier.cases.layer_names import BACKEND_CONTROL
from tcdebug.minifier.cases.outcome import Kind, Outcome

NOTE = (
    "it passes with all units off, and fails in the same way if a kernel of the backend copies "
    "what each operator reads and returns, which changes no value: every kernel causes it, "
    "whatever it computes"
)
"""A note on a failure that no unit decides."""


def fails(ask: Ask, failure: Outcome, base: Toggles) -> bool:
    """Return whether a candidate that passes with everything off fails if kernels only copy.

    `failure` is how it fails under `base`. A backend that has no such kernels passes.
    """
    nothing = base.without(off=[ALL])
    if ask(nothing, "everything off").kind is not Kind.OK:
        return False
    copied = ask(nothing.without(off=[BACKEND_CONTROL]), "only kernels that copy")
    return failure.same_bug(copied)


def fails_instead(ask: Ask, failure: Outcome, base: Toggles, verdict: Verdict) -> bool:
    """Return whether a verdict names only lowerings, although kernels that only copy fail too."""
    units = verdict.units()
    named = bool(units) and all(unit.startswith(LOWERING) for unit in units)
    return named and fails(ask, failure, base)
