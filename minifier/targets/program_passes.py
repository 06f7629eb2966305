"""The gated passes of a program that run outside the compiles of a backend with units."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.gated import SUPERVISION
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.stages.gated_passes import GatedPasses
from tcdebug.minifier.trace.compile_direction import compile_direction


def logging_gate(toggles: Toggles, log: EventLog, counts: dict[str, int] | None = None) -> Gate:
    """Return a gate that logs its decisions. Gates that share `counts` number them together."""

    def record(decision: Decision, scope: str) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=scope)

    return Gate(toggles, record=record, counts={} if counts is None else counts)


@contextlib.contextmanager
def program_passes(
    toggles: Toggles, log: EventLog, counts: dict[str, int] | None = None
) -> Iterator[None]:
    """Let the gated passes of the program ask about toggles in this block, and log them.

    A backend with units that is patched inside the block supervises them instead.
    """
    gate = logging_gate(toggles, log, counts)
    with SUPERVISION.of_process(GatedPasses(gate, log, direction=compile_direction)):
        yield
