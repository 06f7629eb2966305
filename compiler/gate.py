"""May this step be taken? Every optional step of a compile asks here, last, and is recorded.

    if fusible(a, b) and gate.allows("fuse.vertical", f"{a.name}+{b.name}"):
        fuse(a, b)

`Toggles` is the answer as data: it crosses processes as JSON and is what a bisection searches
over. A unit is a dotted name; switching `lower` off switches `lower.aten.erf.default` off. What
correctness needs is not a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType

from tcdebug.compiler.errors import Coded


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


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of the gate.

    `site` names the same decision in every run, also when earlier ones were turned off;
    `ordinal` counts the decisions of the unit's family in this compile, from 0.
    """

    unit: str
    subject: str
    site: str
    ordinal: int
    allowed: bool


class Gate:
    """Answers for one compile, and remembers every answer in order.

    With `counts` of their own the gates of several compiles count on from one another, so that
    the first n decisions are those of all the compiles together.
    """

    def __init__(
        self,
        toggles: Toggles | None = None,
        graph_id: str = "",
        record: Callable[[Decision], None] = lambda decision: None,
        counts: dict[str, int] | None = None,
    ) -> None:
        self.toggles = toggles or Toggles()
        self.graph_id = graph_id
        self.scope = ""
        self.decisions: list[Decision] = []
        self._record = record
        self._counts: dict[str, int] = {} if counts is None else counts
        self._seen: dict[tuple[str, str, str], int] = {}

    def under(self, toggles: Toggles) -> Gate:
        """A gate for another attempt at the same compile; its decisions are counted on."""
        gate = Gate(toggles, self.graph_id, self._record, self._counts)
        gate.scope = self.scope
        return gate

    def allows(self, unit: str, subject: str) -> bool:
        """Whether a step that is otherwise decided may be taken; asks once for every step."""
        key = (self.scope, unit, subject)
        repeat = self._seen.get(key, 0)
        self._seen[key] = repeat + 1
        site = site_id(self.graph_id, *key, str(repeat))
        family = unit.partition(".")[0]
        decision = Decision(
            unit, subject, site, self._next(family), self._allowed(unit, site)
        )
        self.decisions.append(decision)
        self._record(decision)
        return decision.allowed

    def _next(self, name: str) -> int:
        ordinal = self._counts.get(name, 0)
        self._counts[name] = ordinal + 1
        return ordinal

    def _allowed(self, unit: str, site: str) -> bool:
        toggles = self.toggles
        allowed = site not in toggles.sites and not toggles.rules_out(unit)
        for name, limit in toggles.first.items():
            if belongs(unit, name) and self._next(f"first {name}") >= limit:
                allowed = False
        return allowed


def site_id(*parts: str) -> str:
    """A short stable name of a place in a compile."""
    return blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()
