"""Toggles: which optional steps a compile may take, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tcdebug.compiler.errors.exceptions import Coded


class BadToggle(Coded, ValueError):
    """A toggle that cannot be parsed. The message shows the accepted forms."""

    code = "TCD005"


@dataclass(frozen=True, slots=True)
class Toggles:
    """Which optional steps a compile may take.

    `off` holds the units, and `sites` the ids of single decisions, that are switched off. `first`
    allows only the first n decisions of a unit, counting the units below it. If `only` is not
    empty, only these units are allowed.
    """

    off: frozenset[str] = frozenset()
    sites: frozenset[str] = frozenset()
    first: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Toggles:
        """Parse toggles: `fuse`, `site:1f0c9a7be2`, `fuse:12` (the first 12), `only:fuse`.

        Raises BadToggle.
        """
        off: set[str] = set()
        sites: set[str] = set()
        first: dict[str, int] = {}
        only: set[str] = set()
        for text in texts:
            name, colon, value = text.partition(":")
            if not colon:
                off.add(name)
            elif name == "site":
                sites.add(value)
            elif name == "only":
                only.add(value)
            elif value.isdecimal():
                first[name] = int(value)
            else:
                raise BadToggle(f"{text!r} is none of UNIT, site:ID, UNIT:COUNT, only:UNIT")
        return cls(frozenset(off), frozenset(sites), MappingProxyType(first), frozenset(only))

    def texts(self) -> list[str]:
        """These toggles in the form that `parse` reads, in a fixed order."""
        return [
            *sorted(self.off),
            *(f"site:{s}" for s in sorted(self.sites)),
            *(f"{unit}:{n}" for unit, n in sorted(self.first.items())),
            *(f"only:{unit}" for unit in sorted(self.only)),
        ]

    def without(self, *, off: Iterable[str] = (), sites: Iterable[str] = ()) -> Toggles:
        """These toggles with more units or decisions switched off."""
        return replace(self, off=self.off | frozenset(off), sites=self.sites | frozenset(sites))

    def rules_out(self, unit: str) -> bool:
        """Return whether no decision of a unit can be allowed, so that none has to be prepared."""
        if any(belongs(unit, off) for off in self.off):
            return True
        return bool(self.only) and not any(belongs(unit, name) for name in self.only)

    def limited(self, unit: str, count: int) -> Toggles:
        """These toggles with only the first `count` decisions of a unit allowed."""
        return replace(self, first=MappingProxyType({**self.first, unit: count}))

    def allowing(self, units: Iterable[str]) -> Toggles:
        """These toggles with only the given units allowed."""
        return replace(self, only=frozenset(units))


ALL = "all"
"""Stands for all units. Every search starts from `all` switched off; `all:12` is a prefix."""


def belongs(unit: str, name: str) -> bool:
    """Return whether a unit is `name` or lies below it."""
    return name == ALL or unit == name or unit.startswith(name + ".")
