"""May this step be taken? Every optional step of a compile asks here, last, and is recorded.

    if fusible(a, b) and gate.allows("fuse.vertical", f"{a.name}+{b.name}"):
        fuse(a, b)

`Toggles` is the answer as data: it crosses processes as JSON and is what a bisection searches
over. A unit is a dotted name; switching `lower` off switches `lower.aten.erf.default` off. What
correctness needs is not a unit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
