"""The units of Dynamo: which frames it captures, and how many lines of each.

They serve to find faults in what Dynamo captures. They are therefore consulted only where no later
layer compiles anything: with `layer.autograd` off, a captured graph runs in eager. All remaining
decisions are Dynamo's, and a bisection ends at a source line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.targets.dynamo import frame, line
from tcdebug.minifier.targets.dynamo.frame import (
    cuts_allowed,
    frames,
    transforms_allowed,
)
from tcdebug.minifier.targets.dynamo.line import lines

__all__ = ["FAMILY", "PATCHES", "switched"]

FAMILY = "dynamo"

PATCHES: tuple[Patch, ...] = (*frame.PATCHES, *line.PATCHES)
"""Every patch of Dynamo that makes a unit possible."""


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog) -> Iterator[Gate]:
    """Let captures in this block ask a gate, and log its decisions.

    If toggles restrict any unit of Dynamo, its cuts are no errors under `fullgraph` of
    torch.compile. Graph breaks of the program are.
    """

    def record(decision: Decision, scope: str) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction="capture")

    gate = Gate(toggles, record=record)
    cut: set[CodeType] = set()
    broken: set[CodeType] = set()
    with contextlib.ExitStack() as stack:
        stack.enter_context(frames(gate, log, cut, broken))
        stack.enter_context(lines(gate, log, cut, broken))
        if _restricts(toggles):
            stack.enter_context(cuts_allowed(log))
            stack.enter_context(transforms_allowed(log))
        yield gate


def _restricts(toggles: Toggles) -> bool:
    """Return whether any decision may be refused."""
    return bool(toggles.sites or toggles.first or toggles.only or toggles.rules_out(FAMILY)) or any(
        name.startswith(FAMILY) for name in toggles.off
    )
