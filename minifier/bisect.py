"""Which decision of the compiler is at fault: prefix search, then confirmation both ways.

Decisions come in the order of the pipeline, and the first n of a compile are the same whatever
happens to the rest. So "only the first n decisions let through" is a program between everything
off and everything on, and a binary search over n finds the decision that brings the failure in.
What is found is confirmed: without that decision alone the failure is gone; or without its unit,
where the same fault acts in several places (a lowering that forward and backward both use). If it
is not gone even then, there is another fault, and the search goes on with this unit switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcdebug.compiler.event_log import EventLog
from tcdebug.compiler.events import BisectPlan, BisectResult, BisectStep
from tcdebug.compiler.gate import ALL, Decision, Toggles
from tcdebug.minifier.outcome import Kind, Outcome
from tcdebug.minifier.search import first_bad

MOST_CULPRITS = 8
"""More independent faults than this are not told apart."""

Ask = Callable[[Toggles, str], Outcome]


@dataclass(frozen=True)
class Verdict:
    """What a bisection found.

    `culprits` are decisions, one for each independent fault. `confirmed`: without them (or their
    whole units, if `whole_units`) it passes, and with any one of them back it fails. `core`: it
    fails with everything off, so no unit is at fault.
    """

    culprits: tuple[Decision, ...]
    confirmed: bool
    core: bool = False
    whole_units: bool = False

    def units(self) -> list[str]:
        """The units of the culprits, each once."""
        return list(dict.fromkeys(c.unit for c in self.culprits))


def bisect(ask: Ask, failure: Outcome, base: Toggles, log: EventLog) -> Verdict:
    """Find the decisions at fault, given that the target fails under `base` with `failure`."""
    if failure.same_bug(ask(base.without(off=[ALL]), "everything off")):
        return Verdict((), confirmed=False, core=True)
    culprits: list[Decision] = []
    current, toggles, whole = failure, base, False
    while current.failed and len(culprits) < MOST_CULPRITS:
        found = _one_culprit(ask, current, toggles, log)
        if found is None:
            return Verdict(tuple(culprits), confirmed=False)
        culprits.append(found)
        current = ask(toggles.without(sites=[found.site]), f"without this {found.unit}")
        if current.failed:
            whole = True
            toggles = toggles.without(off=[found.unit])
            current = ask(toggles, f"without any {found.unit}")
        else:
            toggles = toggles.without(sites=[found.site])
    confirmed = current.kind is Kind.OK and _each_matters(ask, base, culprits)
    for culprit in culprits:
        log.emit(
            BisectResult(culprit.subject, culprit.ordinal, confirmed),
            unit=culprit.unit,
            site=culprit.site,
        )
    return Verdict(tuple(culprits), confirmed, whole_units=whole)


def _each_matters(ask: Ask, base: Toggles, culprits: Sequence[Decision]) -> bool:
    """Whether it fails with any one of several culprits on and the others off."""
    if len(culprits) == 1:
        return True  # with the only one on it fails: that is what was reported
    return all(
        ask(
            base.without(off=[c.unit for c in culprits if c.unit != this.unit]),
            f"only {this.unit} of the culprits",
        ).failed
        for this in culprits
    )


def _one_culprit(ask: Ask, failure: Outcome, toggles: Toggles, log: EventLog) -> Decision | None:
    """The decision at which the failure comes in, None where the search finds none."""
    decisions = failure.decisions
    log.emit(BisectPlan("decisions", len(decisions), max(1, len(decisions)).bit_length()))

    def bad(count: int) -> bool:
        outcome = ask(toggles.limited(ALL, count), f"first {count} decisions")
        return failure.same_bug(outcome)

    if not decisions or not bad(len(decisions)):
        return None
    boundaries = _unit_ends(decisions)
    low, high = _within_units(boundaries, bad, log)
    count = first_bad(low, high, bad)
    log.emit(BisectStep("decisions", count - 1, count))
    return decisions[count - 1]


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
