"""The units of AOTAutograd: the parts of its trace and its wrappers that can be done otherwise.

They are for faults that torch's backend `aot_eager` has too, so they are asked where that backend
compiles (`layer.decompositions` off), and where toggles name one of them. A compile that asks about
the units of a backend does not ask about these: its decisions and their cost stay what they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.targets.autograd import aliases, decompositions, functionalization, tracing
from tcdebug.minifier.targets.ladder import AUTOGRAD_FAMILY, autograd_asked, only_autograd

__all__ = ["PATCHES", "switched"]

Seam = Callable[[Gate, EventLog], AbstractContextManager[None]]

SEAMS: tuple[Seam, ...] = (
    tracing.settings,
    decompositions.decompositions,
    functionalization.functionalization,
    aliases.aliases,
)

PATCHES: tuple[Patch, ...] = (
    *tracing.PATCHES,
    *functionalization.PATCHES,
    *aliases.PATCHES,
)
"""Every patch of AOTAutograd by which it has units."""


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog) -> Iterator[Gate]:
    """Let compiles in this block ask a gate, and write its decisions to the log.

    Beside the units of a backend, `all` and `only` do not hold back these, unless they name one,
    and nothing is written: a search among the backend's decisions counts its own.
    """

    alone = only_autograd(toggles)

    def record(decision: Decision, scope: str) -> None:
        if not alone:
            return
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=scope)

    gate = Gate(toggles if alone else _own(toggles), record=record, scope="joint")
    with contextlib.ExitStack() as stack:
        if autograd_asked(toggles):
            for seam in SEAMS:
                stack.enter_context(seam(gate, log))
        yield gate


def _own(toggles: Toggles) -> Toggles:
    """What toggles say about units of AOTAutograd by name."""
    return Toggles(
        frozenset(name for name in toggles.off if belongs(name, AUTOGRAD_FAMILY)),
        toggles.sites,
        {name: count for name, count in toggles.first.items() if belongs(name, AUTOGRAD_FAMILY)},
        frozenset(name for name in toggles.only if belongs(name, AUTOGRAD_FAMILY)),
    )
