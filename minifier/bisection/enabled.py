"""The fewest units that have to be on for a fault: partners of the culprit, and what it builds on.

Asked of a minimised case, where few units take part: the smallest graph and the smallest set of
units are found for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.search.algorithms import minimal_subset


@dataclass(frozen=True)
class Enabled:
    """The fewest units that have to be on for a fault, `unit` included.

    `partners` are those without any one of which its decision is still taken, and it passes: the
    fault is in what they do together. The others, `requires`, only bring the decision about.
    """

    unit: str
    partners: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    def units(self) -> list[str]:
        """All of them."""
        return [*self.requires, *self.partners, self.unit]


LIKELY = ("lower", "fuse")
"""Families of which much is made: looked at first."""


def _family(unit: str) -> str:
    return unit.partition(".")[0]


def fewest_enabled(ask: Ask, failure: Outcome, unit: str, toggles: Toggles) -> Enabled | None:
    """The fewest units with which a small case fails in the same way, None where it does not.

    `failure` is how the case fails under `toggles`, its decisions included. Meant for a minimised
    case: it asks about twice for each unit that takes part.
    """
    units = [u for u in dict.fromkeys(d.unit for d in failure.decisions if d.allowed) if u != unit]

    def bad(subset: Sequence[str]) -> bool:
        outcome = ask(toggles.allowing([*subset, unit]), f"only {unit} and {len(subset)} others")
        return failure.same_bug(outcome)

    if bad([]):
        return Enabled(unit)
    if not bad(units):
        return None
    families = sorted({_family(u) for u in units}, key=lambda f: (f not in LIKELY, f))
    kept = minimal_subset(families, lambda some: bad([u for u in units if _family(u) in some]))
    needed = minimal_subset([u for u in units if _family(u) in kept], bad)
    partners: list[str] = []
    for other in needed:
        without = ask(toggles.without(off=[other]), f"without {other}")
        taken = any(d.unit == unit and d.allowed for d in without.decisions)
        if taken and without.kind is Kind.OK:
            partners.append(other)
    requires = [u for u in needed if u not in partners]
    return Enabled(unit, tuple(partners), tuple(requires))
