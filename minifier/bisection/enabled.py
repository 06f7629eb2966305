"""Finds the fewest units that must be on for a fault: the culprit's partners and prerequisites.

It searches with a minimised case, because few units take part in its compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import Ask
from tcdebug.minifier.cases.outcome import Outcome, Resolution
from tcdebug.minifier.search.algorithms import TooManyNeeded, minimal_subset


@dataclass(frozen=True)
class Enabled:
    """The fewest units that must be on for a fault, including `unit`.

    Without any of the `partners` the unit's decision is still taken, but the case passes, so the
    fault is in their combination. Each group in `either` is one partner with several substitutes:
    the case passes only with the whole group off. Without any of `requires`, the decision is not
    taken, or the case fails in a different way.
    """

    unit: str
    partners: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    either: tuple[tuple[str, ...], ...] = ()

    def units(self) -> list[str]:
        """Return all of them, with the first of each group."""
        return [*self.requires, *(group[0] for group in self.either), *self.partners, self.unit]


@dataclass(frozen=True)
class Unlisted:
    """The fault needs more than `MOST_NEEDED` other units, so they were not determined."""


LIKELY = ("lower", "fuse")
"""Families with many units, which are tried first."""
MOST_NEEDED = 4
"""The limit on other units that a fault needs. Each costs five to ten runs."""
MOST_SUBSTITUTES = 3
"""The limit on units in a group."""


def _family(unit: str) -> str:
    return unit.partition(".")[0]


def fewest_enabled(
    ask: Ask, failure: Outcome, unit: str, toggles: Toggles
) -> Enabled | Unlisted | None:
    """Return the fewest units with which a small case fails in the same way; None if none do.

    `failure` is how the case fails under `toggles`, with its decisions. It is meant for a minimised
    case, because it asks about two questions for each unit that takes part. A plan of memory that
    is wrong only for one order of many buffers needs dozens of units, which are not listed.
    """
    try:
        return _fewest(ask, failure, unit, toggles)
    except TooManyNeeded:
        return Unlisted()


def _fewest(ask: Ask, failure: Outcome, unit: str, toggles: Toggles) -> Enabled | None:
    units = [u for u in dict.fromkeys(d.unit for d in failure.decisions if d.allowed) if u != unit]

    def fails_with(some: Sequence[str], off: Sequence[str] = ()) -> bool:
        allowed = toggles.without(off=off).allowing([*some, unit])
        return failure.same_bug(ask(allowed, f"only {unit} and {len(some)} others"))

    if fails_with([]):
        return Enabled(unit)
    if not fails_with(units):
        return None
    needed = _needed(units, fails_with)

    def needed_without(off: Sequence[str]) -> list[str]:
        """Return what else is needed with some units off."""
        left = [u for u in units if u not in off]
        if not fails_with(left, off):
            return []
        return [u for u in _needed(left, lambda some: fails_with(some, off)) if u not in needed]

    partners: list[str] = []
    either: list[tuple[str, ...]] = []
    for other in needed:
        without = ask(toggles.without(off=[other]), f"without {other}")
        taken = any(d.unit == unit and d.allowed for d in without.decisions)
        match failure.resolve(without):
            case Resolution.PASSES if taken:
                partners.append(other)
            case Resolution.FAILS if _family(other) not in LIKELY:
                group = _group(ask, failure, toggles, other, needed_without)
                either += [group] if group else []
    named = {*partners, *(group[0] for group in either)}
    requires = tuple(u for u in needed if u not in named)
    return Enabled(unit, tuple(partners), requires, tuple(either))


def _needed(units: Sequence[str], bad: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return a minimal bad set of units, reduced first by whole families."""
    families = sorted({_family(u) for u in units}, key=lambda f: (f not in LIKELY, f))
    kept = minimal_subset(
        families, lambda some: bad([u for u in units if _family(u) in some]), MOST_NEEDED
    )
    return minimal_subset([u for u in units if _family(u) in kept], bad, MOST_NEEDED)


def _group(
    ask: Ask,
    failure: Outcome,
    toggles: Toggles,
    unit: str,
    needed_without: Callable[[Sequence[str]], list[str]],
) -> tuple[str, ...]:
    """Return a unit with its substitutes; empty if they are not found."""
    off = [unit]
    while len(off) <= MOST_SUBSTITUTES:
        substitutes = needed_without(off)
        if not substitutes:
            return ()
        off += substitutes
        without = ask(toggles.without(off=off), f"without {', '.join(off)}")
        match failure.resolve(without):
            case Resolution.PASSES:
                return tuple(off)
            case Resolution.UNRESOLVED:
                return ()
    return ()
