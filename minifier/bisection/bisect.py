"""Finds the decisions of the compiler at fault by a search over prefixes, and confirms them.

Decisions come in the order of the pipeline, and the first n decisions of a compile do not depend on
the rest. Allowing only the first n decisions therefore gives a compile between everything off and
everything on, and a binary search over n finds the decision that introduces the failure.

A run that fails in a different way is unresolved: it neither fails nor passes. If the prefix before
the failing one is unresolved, the culprit is between the last prefix that passes and the first that
fails (`suspects`).

A culprit is confirmed if the failure occurs with it on and the run passes with it off. The culprit
is that decision alone, or its unit if the same fault acts in several places, such as a lowering in
both forward and backward. If the same failure occurs with the unit off, another unit causes it too,
and the search continues with this one off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.search_events import BisectPlan, BisectResult, BisectStep
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.bisection.suspects import passing_unit
from tcdebug.minifier.cases.outcome import Kind, Outcome, Resolution
from tcdebug.minifier.search.algorithms import first_bad, passing_before

MOST_FAULTS = 8
"""The limit on independent faults."""
MOST_PLACES = 4
"""The limit on places found for one unit. Beyond it the whole unit is switched off."""
SETTING = "config."
"""How the units of settings begin."""
LOWERING = "lower."
"""How the units of lowerings begin."""
GENERAL = ("fuse", "codegen", "memory")
"""Families whose units apply to many operators, so that the decision says more than the unit."""

Ask = Callable[[Toggles, str], Outcome]


@dataclass(frozen=True)
class Fault:
    """An independent fault: how it fails, and the decisions of one unit that cause it.

    `whole_unit` means that the whole unit must be off, because the failure persists if only these
    decisions are off. The fault acts in more places, or another unit causes it too.
    """

    failure: Outcome
    decisions: tuple[Decision, ...]
    whole_unit: bool = False

    @property
    def unit(self) -> str:
        """The unit at fault."""
        return self.decisions[0].unit

    def switched_off(self, toggles: Toggles) -> Toggles:
        """Return the toggles with this fault switched off."""
        if self.whole_unit:
            return toggles.without(off=[self.unit])
        return toggles.without(sites=[d.site for d in self.decisions])


@dataclass(frozen=True)
class Verdict:
    """The faults that a bisection found.

    `confirmed`: the candidate passes without them, and with any single one of them it fails in that
    fault's way. `core`: it fails with everything off, so no unit is at fault. `every_lowering`: the
    faults are all lowerings that it uses, and each causes the same failure.
    """

    faults: tuple[Fault, ...] = ()
    confirmed: bool = False
    core: bool = False
    every_lowering: bool = False

    def units(self) -> list[str]:
        """Return the units at fault, without duplicates."""
        return list(dict.fromkeys(fault.unit for fault in self.faults))

    def decisions(self) -> list[Decision]:
        """Return one decision of each fault."""
        return [fault.decisions[0] for fault in self.faults]

    def alternatives(self) -> tuple[Fault, ...]:
        """Return the faults that fail as the first does. It passes only with all of them off."""
        return tuple(f for f in self.faults[1:] if f.failure.same_bug(self.faults[0].failure))


def bisect(ask: Ask, failure: Outcome, base: Toggles, log: EventLog) -> Verdict:
    """Find the decisions at fault, given that the target fails under `base` with `failure`.

    A failure that occurs only with a fault switched off counts as another fault if the first one
    may have hidden it. It does not if it ends the run in an earlier phase.
    """
    if not failure.decisions:
        return Verdict()
    zero = ask(base.without(off=[ALL]), "everything off")
    if failure.same_bug(zero):
        return Verdict(core=True)
    faults: list[Fault] = []
    current, toggles = failure, base
    while current.failed and len(faults) < MOST_FAULTS and not current.same_bug(zero):
        each = not faults or zero.kind is Kind.OK
        found = _one_fault(ask, current, toggles, zero, log, each_unit=each)
        if found is None:
            break
        fault, left = found
        toggles = fault.switched_off(toggles)
        faults.append(fault)
        current, before = left, current
        if current.ends_before(before):
            break  # switching the fault off caused this failure
    confirmed, count = bool(faults) and current.kind is Kind.OK, len(faults)
    if confirmed:
        faults = needed(ask, base, faults)
        faults = [_as_alone(ask, base, fault, faults, failure) for fault in faults]
        faults = _settings_last(faults)
        confirmed = each_matters(ask, base, faults)
    for fault in faults:
        for decision in fault.decisions:
            log.emit(
                BisectResult(decision.subject, decision.ordinal, confirmed),
                unit=decision.unit,
                site=decision.site,
            )
    verdict = Verdict(tuple(faults), confirmed)
    whole = confirmed and len(faults) == count and _lowers_nothing_else(verdict, current)
    return replace(verdict, every_lowering=whole)


def _lowers_nothing_else(verdict: Verdict, without: Outcome) -> bool:
    """Return whether several faults that fail alike are all lowerings of a candidate.

    `without` is the outcome with the faults off.
    """
    units = verdict.units()
    if len(units) < 2 or len(verdict.alternatives()) + 1 < len(verdict.faults):
        return False
    left = [d.unit for d in without.decisions if d.allowed and d.unit not in units]
    only = all(unit.startswith(LOWERING) for unit in units)
    return bool(without.decisions) and only and not any(u.startswith(LOWERING) for u in left)


def needed(ask: Ask, base: Toggles, faults: Sequence[Fault]) -> list[Fault]:
    """Return the faults that must be off for a pass, given that it passes with all of them off.

    With the first fault off, it may have failed in a different way, and both failures may need only
    the fault that was found second.
    """
    left = list(faults)
    for this in faults:
        others = [fault for fault in left if fault is not this]
        if not others:
            break
        outcome = ask(_without(base, others), f"only {this.unit} of the culprits")
        if outcome.kind is Kind.OK:
            left = others
    return left


def _as_alone(
    ask: Ask, base: Toggles, fault: Fault, faults: Sequence[Fault], failure: Outcome
) -> Fault:
    """Return a fault with the failure under `base`, if it causes that failure by itself.

    It may have been found by the failure that it causes while a fault is off that `needed` removed.
    """
    others = [other for other in faults if other is not fault]
    purpose = f"only {fault.unit} of the culprits"
    outcome = ask(_without(base, others), purpose) if others else failure
    if not failure.same_bug(outcome):
        return fault
    return replace(fault, failure=replace(failure, decisions=fault.failure.decisions))


def _settings_last(faults: Sequence[Fault]) -> list[Fault]:
    """Return faults that fail alike with the settings behind the steps of the compiler.

    A setting may choose a path that ignores whether a step is off. The step is at fault then.
    """
    if not all(fault.failure.same_bug(faults[0].failure) for fault in faults):
        return list(faults)
    return sorted(faults, key=lambda fault: fault.unit.startswith(SETTING))


def _without(base: Toggles, faults: Sequence[Fault]) -> Toggles:
    for fault in faults:
        base = fault.switched_off(base)
    return base


def each_matters(ask: Ask, base: Toggles, faults: Sequence[Fault]) -> bool:
    """Return whether each fault still causes its failure with the others off."""
    if len(faults) == 1:
        return True  # with the only fault on, it fails as reported
    for this in faults:
        toggles = _without(base, [other for other in faults if other is not this])
        if not this.failure.same_bug(ask(toggles, f"only {this.unit} of the culprits")):
            return False
    return True


def _one_fault(
    ask: Ask, failure: Outcome, toggles: Toggles, zero: Outcome, log: EventLog, *, each_unit: bool
) -> tuple[Fault, Outcome] | None:
    """Return a fault and the outcome without it; None if no prefix shows the failure.

    With `each_unit`, each unit is switched off alone if the run does not pass without the fault.
    That takes many runs, and finds little behind a first fault if not even all units together pass.
    If it fails with everything off, some steps are required. A required step may seem to be at
    fault, because switching it off causes another failure.
    """
    decisions = failure.decisions
    bounds = _last_pass_and_first_failure(ask, failure, toggles, zero, log)
    if bounds is None:
        return None
    passing, failing = bounds
    fault = Fault(failure, (decisions[failing - 1],))
    left = ask(fault.switched_off(toggles), f"without this {fault.unit}")
    match failure.resolve(left):
        case Resolution.PASSES:
            return fault, left
        case Resolution.FAILS:
            return _everywhere(ask, fault, left, toggles)
        case Resolution.UNRESOLVED if failure.ends_before(left) and zero.kind is Kind.OK:
            return _with_hidden(ask, fault, left, toggles)
    if sum(decision.unit == fault.unit for decision in decisions) > 1:
        whole, without = _whole_unit(ask, fault, toggles)
        if without.kind is Kind.OK:
            return whole, without
    if not each_unit:
        return fault, left
    first = 0 if passing is None else passing
    suspects = [decisions[first], *reversed(decisions[:failing]), *decisions[failing:]]
    other = passing_unit(ask, suspects, toggles, besides=fault.unit)
    if other is None:
        return fault, left
    unit = other.decision.unit
    place = _next_place(ask, failure, unit, failure.decisions, toggles)
    alone = Fault(failure, (place or other.decision,))
    without = ask(alone.switched_off(toggles), f"without this {unit}")
    if without.kind is Kind.OK:
        return alone, without
    return replace(alone, whole_unit=True), other.outcome


def _whole_unit(ask: Ask, fault: Fault, toggles: Toggles) -> tuple[Fault, Outcome]:
    """Return a fault as one of its whole unit, and the outcome without this unit."""
    whole = replace(fault, whole_unit=True)
    return whole, ask(whole.switched_off(toggles), f"without any {fault.unit}")


def _with_hidden(ask: Ask, fault: Fault, left: Outcome, toggles: Toggles) -> tuple[Fault, Outcome]:
    """Return a fault whose failure may have hidden the one in `left`, and the outcome without it.

    An operator that hangs in forward hangs in backward, too: both are one fault if the run passes
    without the unit.
    """
    known = {decision.site for decision in fault.decisions}
    acts_later = any(d.unit == fault.unit and d.site not in known for d in left.decisions)
    if acts_later and fault.unit.partition(".")[0] not in GENERAL:
        whole, without = _whole_unit(ask, fault, toggles)
        if without.kind is Kind.OK:
            return whole, without
    return fault, left


def _last_pass_and_first_failure(
    ask: Ask, failure: Outcome, toggles: Toggles, zero: Outcome, log: EventLog
) -> tuple[int | None, int] | None:
    """Return the last passing and the first failing number of decisions.

    The first is None if no prefix is known to pass. Returns None if not even all decisions, counted
    as a prefix, show the failure.
    """
    decisions = failure.decisions
    log.emit(BisectPlan("decisions", len(decisions), max(1, len(decisions)).bit_length()))
    known = {0: failure.resolve(zero)}
    if failure.kind is Kind.HANG:  # it never gets past its decisions, and costs a time limit
        known[len(decisions)] = Resolution.FAILS

    def prefix(count: int) -> Resolution:
        if count not in known:
            outcome = ask(toggles.limited(ALL, count), f"first {count} decisions")
            known[count] = failure.resolve(outcome)
        return known[count]

    def fails(count: int) -> bool:
        return prefix(count) is Resolution.FAILS

    if not decisions:
        return None
    low, high = _within_units(_unit_ends(decisions), fails, log)
    failing = first_bad(low, high, fails)
    if failing == len(decisions) and not fails(failing):
        return None
    passing = passing_before(0, failing, prefix)
    if passing is not None and known.get(passing + 1) is Resolution.FAILS:
        failing = passing + 1  # it fails before the unresolved prefixes too
    log.emit(BisectStep("decisions", failing - 1, failing))
    return passing, failing


def _everywhere(ask: Ask, fault: Fault, left: Outcome, toggles: Toggles) -> tuple[Fault, Outcome]:
    """Extend a fault that persists without its decision. Also return the outcome without it."""
    whole, without_unit = _whole_unit(ask, fault, toggles)
    if fault.failure.same_bug(without_unit) or fault.unit.partition(".")[0] not in GENERAL:
        return whole, without_unit
    known = {d.site for d in fault.failure.decisions}
    while fault.failure.same_bug(left) and len(fault.decisions) < MOST_PLACES:
        place = _next_place(
            ask, fault.failure, fault.unit, left.decisions, fault.switched_off(toggles)
        )
        if place is None or place.site not in known:
            break  # this step is taken only because others are off
        fault = replace(fault, decisions=(*fault.decisions, place))
        left = ask(fault.switched_off(toggles), f"without {len(fault.decisions)} of {fault.unit}")
    if left.kind is Kind.OK:
        return fault, left
    return whole, without_unit


def _next_place(
    ask: Ask, failure: Outcome, unit: str, decisions: Sequence[Decision], toggles: Toggles
) -> Decision | None:
    """Return a decision of a unit that causes a failure; None if there is none.

    It requires that the failure occurs under `toggles` with these decisions, but not with the unit
    off.
    """
    places = [d for d in decisions if d.unit == unit]

    def bad(count: int) -> bool:
        return failure.same_bug(ask(toggles.limited(unit, count), f"first {count} of {unit}"))

    if not places:
        return None
    first = first_bad(0, len(places), bad)
    return places[first - 1] if first < len(places) or bad(first) else None


def _unit_ends(decisions: Sequence[Decision]) -> list[int]:
    """Return the positions where one family of units ends and the next begins, in order."""
    ends = [
        k + 1
        for k in range(len(decisions) - 1)
        if _family(decisions[k]) != _family(decisions[k + 1])
    ]
    return [0, *ends, len(decisions)]


def _family(decision: Decision) -> str:
    return decision.unit.partition(".")[0]


def _within_units(
    ends: Sequence[int], bad: Callable[[int], bool], log: EventLog
) -> tuple[int, int]:
    """Return the bounds of the group of units at fault, before the search inside it."""
    found = first_bad(0, len(ends) - 1, lambda k: bad(ends[k]))
    log.emit(BisectStep("units", ends[found - 1], ends[found]))
    return ends[found - 1], ends[found]
