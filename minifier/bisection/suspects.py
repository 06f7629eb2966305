"""Finds the single unit without which a run passes, where a search over prefixes fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.cases.outcome import Kind, Outcome

MOST_ALONE = 40
"""The limit on units that are switched off one by one."""


@dataclass(frozen=True)
class Suspect:
    """A decision of a unit, and the outcome with that unit off."""

    decision: Decision
    outcome: Outcome


def passing_unit(
    ask: Callable[[Toggles, str], Outcome],
    decisions: Sequence[Decision],
    toggles: Toggles,
    besides: str,
) -> Suspect | None:
    """Return the first unit of the decisions without which the run passes; None if there is none.

    It asks about each unit except `besides` once, in the order of the decisions, until one passes
    or MOST_ALONE units have been asked about.
    """
    units: dict[str, Decision] = {}
    for decision in decisions:
        if decision.allowed and decision.unit != besides:
            units.setdefault(decision.unit, decision)
    for decision in list(units.values())[:MOST_ALONE]:
        outcome = ask(toggles.without(off=[decision.unit]), f"without {decision.unit}")
        if outcome.kind is Kind.OK:
            return Suspect(decision, outcome)
    return None
