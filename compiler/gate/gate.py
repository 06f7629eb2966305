"""The gate: every optional step of a compile asks it last, and it records every answer.

    if fusible(a, b) and gate.allows("fuse.vertical", f"{a.name}+{b.name}"):
        fuse(a, b)

`Toggles` hold the answers as data; they cross processes as text, and a bisection searches over
them. A unit is a dotted name: switching `lower` off switches `lower.aten.erf.default` off. A step
that correctness needs is not a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from tcdebug.compiler.gate.toggles import Toggles, belongs


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


@dataclass
class Gate:
    """Answers for one compile, and remembers every answer in order.

    Gates that share `counts` number their decisions as one, so that the first n decisions are
    those of all their compiles together. `record` is told every decision.
    """

    toggles: Toggles = field(default_factory=Toggles)
    graph_id: str = ""
    record: Callable[[Decision, str], None] = lambda decision, scope: None
    """Called with each decision and the scope of the gate that made it."""
    counts: dict[str, int] = field(default_factory=dict)
    scope: str = ""
    """The graph of the compile that asks: capture, joint, forward, backward or inference."""
    decisions: list[Decision] = field(default_factory=list)
    _asked: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How often each (scope, unit, subject) was asked about."""

    def under(self, toggles: Toggles) -> Gate:
        """A gate for another attempt at the same compile; it goes on counting decisions."""
        return replace(self, toggles=toggles, decisions=[], _asked={})

    def scoped(self, scope: str) -> Gate:
        """This gate as another graph of the same compile asks it.

        The two share counts and decisions; a site depends on the scope.
        """
        return replace(self, scope=scope)

    def allows(self, unit: str, subject: str) -> bool:
        """Whether a step that is otherwise decided may be taken; asks once for every step."""
        key = (self.scope, unit, subject)
        repeat = self._asked.get(key, 0)
        self._asked[key] = repeat + 1
        site = site_id(self.graph_id, *key, str(repeat))
        family = unit.partition(".")[0]
        decision = Decision(
            unit, subject, site, self._next(family), self._allowed(unit, site)
        )
        self.decisions.append(decision)
        self.record(decision, self.scope)
        return decision.allowed

    def _next(self, name: str) -> int:
        ordinal = self.counts.get(name, 0)
        self.counts[name] = ordinal + 1
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
