"""Which decisions of the compiler are at fault: prefix search, then confirmation both ways.

Decisions come in the order of the pipeline, and the first n of a compile are the same whatever
happens to the rest. So "only the first n decisions let through" is a program between everything
off and everything on, and a binary search over n finds the decision that brings the failure in.
What is found is confirmed: without that decision alone the failure is gone; or without its unit,
where the same fault acts in several places (a lowering that forward and backward both use). If it
is not gone even then, there is another fault, and the search goes on with this one switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import BisectPlan, BisectResult, BisectStep
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import ALL, Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.algorithms import first_bad

MOST_FAULTS = 8
"""More independent faults than this are not told apart."""
MOST_PLACES = 4
"""Decisions of one unit that are found one by one; with more of them the unit is switched off."""
GENERAL = ("fuse", "codegen", "memory")
"""Families whose units are not about one operator: which of their decisions it is says more."""

Ask = Callable[[Toggles, str], Outcome]


@dataclass(frozen=True)
class Fault:
    """An independent fault: how it fails, and the decisions of one unit that bring it in.

    `whole_unit`: the unit has to be off, since without these decisions alone it still fails: it
    acts in more places, or there is another fault.
    """

    failure: Outcome
    decisions: tuple[Decision, ...]
    whole_unit: bool = False

    @property
    def unit(self) -> str:
        """The unit at fault."""
        return self.decisions[0].unit

    def held_back(self, toggles: Toggles) -> Toggles:
        """Toggles with this fault switched off."""
        if self.whole_unit:
            return toggles.without(off=[self.unit])
        return toggles.without(sites=[d.site for d in self.decisions])


@dataclass(frozen=True)
class Verdict:
    """What a bisection found: the independent faults.

    `confirmed`: without them it passes, and with any one of them back it fails as that one does.
    `core`: it fails with everything off, so no unit is at fault.
    """

    faults: tuple[Fault, ...] = ()
    confirmed: bool = False
    core: bool = False

    def units(self) -> list[str]:
        """The units at fault, each once."""
        return list(dict.fromkeys(fault.unit for fault in self.faults))

    def decisions(self) -> list[Decision]:
        """One decision of each fault."""
        return [fault.decisions[0] for fault in self.faults]


def bisect(ask: Ask, failure: Outcome, base: Toggles, log: EventLog) -> Verdict:
    """Find the decisions at fault, given that the target fails under `base` with `failure`."""
    if not failure.decisions:
        return Verdict()
    zero = ask(base.without(off=[ALL]), "everything off")
    if failure.same_bug(zero):
        return Verdict(core=True)
    faults: list[Fault] = []
    current, toggles = failure, base
    while current.failed and len(faults) < MOST_FAULTS and not current.same_bug(zero):
        fault = _one_fault(ask, current, toggles, log)
        if fault is None:
            break
        fault, current = _everywhere(ask, fault, toggles)
        toggles = fault.held_back(toggles)
        faults.append(fault)
    confirmed = bool(faults) and current.kind is Kind.OK and each_matters(ask, base, faults)
    for fault in faults:
        for decision in fault.decisions:
            log.emit(
                BisectResult(decision.subject, decision.ordinal, confirmed),
                unit=decision.unit,
                site=decision.site,
            )
    return Verdict(tuple(faults), confirmed)


def each_matters(ask: Ask, base: Toggles, faults: Sequence[Fault]) -> bool:
    """Whether each of several faults, with the others off, fails as it was found to."""
    if len(faults) == 1:
        return True  # with the only one on it fails: that is what was reported
    for this in faults:
        toggles = base
        for other in faults:
            if other is not this:
                toggles = other.held_back(toggles)
        if not this.failure.same_bug(ask(toggles, f"only {this.unit} of the culprits")):
            return False
    return True


def _one_fault(ask: Ask, failure: Outcome, toggles: Toggles, log: EventLog) -> Fault | None:
    """The decision at which the failure comes in, None where the search finds none."""
    decisions = failure.decisions
    log.emit(BisectPlan("decisions", len(decisions), max(1, len(decisions)).bit_length()))

    def bad(count: int) -> bool:
        outcome = ask(toggles.limited(ALL, count), f"first {count} decisions")
        return failure.same_bug(outcome)

    if not decisions:
        return None
    low, high = _within_units(_unit_ends(decisions), bad, log)
    count = first_bad(low, high, bad)
    if count == len(decisions) and not bad(count):
        return None  # not even all of them, counted, show the failure
    log.emit(BisectStep("decisions", count - 1, count))
    return Fault(failure, (decisions[count - 1],))


def _everywhere(ask: Ask, fault: Fault, toggles: Toggles) -> tuple[Fault, Outcome]:
    """The fault with the other places where it acts, and what is left without it."""
    left = ask(fault.held_back(toggles), f"without this {fault.unit}")
    general = fault.unit.partition(".")[0] in GENERAL
    while general and fault.failure.same_bug(left) and len(fault.decisions) < MOST_PLACES:
        place = _next_place(ask, fault, left, toggles)
        if place is None:
            break
        fault = replace(fault, decisions=(*fault.decisions, place))
        left = ask(fault.held_back(toggles), f"without {len(fault.decisions)} of {fault.unit}")
    if not fault.failure.same_bug(left):
        return fault, left
    fault = replace(fault, whole_unit=True)
    return fault, ask(fault.held_back(toggles), f"without any {fault.unit}")


def _next_place(ask: Ask, fault: Fault, left: Outcome, toggles: Toggles) -> Decision | None:
    """Another decision of the same unit that brings the same failure in, if there is one."""
    places = [d for d in left.decisions if d.unit == fault.unit]

    def bad(count: int) -> bool:
        limited = fault.held_back(toggles).limited(fault.unit, count)
        return fault.failure.same_bug(ask(limited, f"first {count} of {fault.unit}"))

    if not places or bad(0) or not bad(len(places)):
        return None
    return places[first_bad(0, len(places), bad) - 1]


def _unit_ends(decisions: Sequence[Decision]) -> list[int]:
    """Where one family of units ends and the next begins, in order."""
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
    """First the run of units, then what is inside it: bounds of the guilty one."""
    found = first_bad(0, len(ends) - 1, lambda k: bad(ends[k]))
    log.emit(BisectStep("units", ends[found - 1], ends[found]))
    return ends[found - 1], ends[found]
