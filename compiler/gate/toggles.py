"""Toggles: which optional steps a compile may take, as data and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tcdebug.compiler.errors.exceptions import Coded


class BadToggle(Coded, ValueError):
    """A toggle that cannot be read; the message says what it should look like."""

    code = "TCD005"


@dataclass(frozen=True, slots=True)
class Toggles:
    """Which optional steps a compile may take.

    `off` holds units, `sites` decisions by site id; `first` lets only the first n decisions of a
    unit (and of all units below it) through; with `only`, nothing but these units is let through.
    """

    off: frozenset[str] = frozenset()
    sites: frozenset[str] = frozenset()
    first: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    only: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Toggles:
        """From what a user writes: `fuse`, `site:1f0c9a7be2`, `fuse:12` (the first 12), `only:fuse`

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
        """What `parse` reads, in a fixed order."""
        return [
            *sorted(self.off),
            *(f"site:{s}" for s in sorted(self.sites)),
            *(f"{unit}:{n}" for unit, n in sorted(self.first.items())),
            *(f"only:{unit}" for unit in sorted(self.only)),
        ]

    def without(self, *, off: Iterable[str] = (), sites: Iterable[str] = ()) -> Toggles:
        """These toggles with more switched off."""
        return replace(self, off=self.off | frozenset(off), sites=self.sites | frozenset(sites))

    def rules_out(self, unit: str) -> bool:
        """Whether no decision of a unit is let through, so that none need be prepared."""
        if any(belongs(unit, off) for off in self.off):
            return True
        return bool(self.only) and not any(belongs(unit, name) for name in self.only)

    def limited(self, unit: str, count: int) -> Toggles:
        """These toggles with only the first `count` decisions of a unit let through."""
        return replace(self, first=MappingProxyType({**self.first, unit: count}))

    def allowing(self, units: Iterable[str]) -> Toggles:
        """These toggles with nothing but some units let through."""
        return replace(self, only=frozenset(units))


ALL = "all"
"""The name of all units together: `all` off is the zero of every search, `all:12` a prefix."""


def belongs(unit: str, name: str) -> bool:
    """Whether a unit is `name` or below it."""
    return name == ALL or unit == name or unit.startswith(name + ".")
