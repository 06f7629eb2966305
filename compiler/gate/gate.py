"""The gate decides whether an optional step of a compile is taken, and records every decision.

    if fusible(a, b) and gate.allows("fuse.vertical", f"{a.name}+{b.name}"):
        fuse(a, b)

A step asks the gate after all its other conditions are met. `Toggles` hold the answers as data.
They are passed between processes as text, and a bisection searches over them. A unit is a dotted
name: switching `lower` off also switches `lower.aten.erf.default` off. A step that is needed for
correctness is not a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from tcdebug.compiler.gate.toggles import Toggles, belongs


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of the gate.

    `site` identifies the decision in every run, even if earlier decisions were switched off.
    `ordinal` numbers the decisions of the unit's family (`fuse`, `lower`, ...) in this compile,
    from 0.
    """

    unit: str
    subject: str
    site: str
    ordinal: int
    allowed: bool


@dataclass
class Gate:
    """Answers for one compile and keeps its decisions in order.

    Gates that share `counts` number their decisions in one sequence, so a limit on the first n
    decisions applies to all their compiles together.
    """

    toggles: Toggles = field(default_factory=Toggles)
    graph_id: str = ""
    record: Callable[[Decision, str], None] = lambda decision, scope: None
    """Called with each decision and the scope of the gate that made it."""
    counts: dict[str, int] = field(default_factory=dict)
    scope: str = ""
    """The graph that asks: capture, joint, forward, backward or inference."""
    decisions: list[Decision] = field(default_factory=list)
    _asked: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How often each (scope, unit, subject) was asked about."""

    def under(self, toggles: Toggles) -> Gate:
        """Return a gate for another attempt at the same compile. Ordinals continue."""
        return replace(self, toggles=toggles, decisions=[], _asked={})

    def scoped(self, scope: str) -> Gate:
        """Return a gate for another graph of the same compile.

        Both gates share counts and decisions. Site ids depend on the scope.
        """
        return replace(self, scope=scope)

    def turn_to(self, scope: str) -> None:
        """Make all later decisions for another graph of the same compile.

        For a compiler whose steps share one gate and take one graph after another.
        """
        self.scope = scope

    def allows(self, unit: str, subject: str) -> bool:
        """Whether a step may be taken. Call it once per step, when nothing else prevents the step.

        Records a decision, whatever the answer.
        """
        key = (self.scope, unit, subject)
        repeat = self._asked.get(key, 0)
        self._asked[key] = repeat + 1
        site = site_id(self.graph_id, *key, str(repeat))
        family = unit.partition(".")[0]
        decision = Decision(unit, subject, site, self._next(family), self._allowed(unit, site))
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
    """Return a short, stable id of a place in a compile."""
    return blake2b("\0".join(parts).encode(), digest_size=5).hexdigest()
