"""Which decision of the compiler is at fault: prefix search, then confirmation both ways.

Decisions come in the order of the pipeline, and the first n of a compile are the same whatever
happens to the rest. So "only the first n decisions let through" is a program between everything
off and everything on, and a binary search over n finds the decision that brings the failure in.
What is found is confirmed: without it alone the failure is gone, else the search goes on with it
switched off, until all that must be off together is known. (A fault in a lowering that forward and
backward both use is two decisions, and the second failure is not the same bug as the first.)
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

    `culprits` are the decisions that must be off for the failure to go away. `confirmed`: with
    all of them off it does go away, and with any one of them on it does not. `core`: it fails
    with everything off, so no unit is at fault.
    """

    culprits: tuple[Decision, ...]
    confirmed: bool
    core: bool = False

    def units(self) -> list[str]:
        """The units of the culprits, each once."""
        return list(dict.fromkeys(c.unit for c in self.culprits))


def bisect(ask: Ask, failure: Outcome, base: Toggles, log: EventLog) -> Verdict:
    """Find the decisions at fault, given that the target fails under `base` with `failure`."""
    if failure.same_bug(ask(base.without(off=[ALL]), "everything off")):
        return Verdict((), confirmed=False, core=True)
    culprits: list[Decision] = []
    current, toggles = failure, base
    while current.failed and len(culprits) < MOST_CULPRITS:
        found = _one_culprit(ask, current, toggles, log)
        if found is None:
            return Verdict(tuple(culprits), confirmed=False)
        culprits.append(found)
        toggles = base.without(sites=[c.site for c in culprits])
        current = ask(toggles, f"without {found.unit}")
    confirmed = current.kind is Kind.OK and all(
        ask(_only_this_on(base, culprits, c), f"with {c.unit} alone of them").failed
        for c in culprits
    )
    for culprit in culprits:
        log.emit(
            BisectResult(culprit.subject, culprit.ordinal, confirmed),
            unit=culprit.unit,
            site=culprit.site,
        )
    return Verdict(tuple(culprits), confirmed)


def _only_this_on(base: Toggles, culprits: Sequence[Decision], this: Decision) -> Toggles:
    return base.without(sites=[c.site for c in culprits if c.site != this.site])


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
