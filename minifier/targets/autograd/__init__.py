"""The units of AOTAutograd: steps of its trace and its wrappers that have an alternative.

They serve to find faults that torch's backend `aot_eager` has too. They are therefore consulted
where that backend compiles (`layer.decompositions` off), and where toggles name one of them.
Compiles that consult the units of a backend do not consult these, so a backend's decisions and
their cost do not change. Fake kernels are consulted only if a toggle names them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import DecisionTaken
from tcdebug.compiler.gate.gate import Decision, Gate
from tcdebug.compiler.gate.toggles import Toggles, belongs
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.targets.autograd import (
    aliases,
    backward,
    decompositions,
    fake_kernels,
    functionalization,
    scalars,
    tracing,
)
from tcdebug.minifier.targets.ladder import AUTOGRAD_FAMILY, autograd_asked, only_autograd

__all__ = ["PATCHES", "switched"]

Seam = Callable[[Gate, EventLog], AbstractContextManager[None]]

SEAMS: tuple[Seam, ...] = (
    tracing.settings,
    decompositions.decompositions,
    functionalization.functionalization,
    scalars.scalars,
    aliases.aliases,
)

PATCHES: tuple[Patch, ...] = (
    *tracing.PATCHES,
    *functionalization.PATCHES,
    *scalars.PATCHES,
    *aliases.PATCHES,
    *fake_kernels.PATCHES,
    *backward.PATCHES,
)
"""Every patch of AOTAutograd that makes a unit possible."""


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog) -> Iterator[Gate]:
    """Let compiles in this block ask a gate, and log its decisions.

    If the units of a backend are consulted too, `all` and `only` apply to these units only if they
    name one, and nothing is logged but decisions on fake kernels: a search over the backend's
    decisions counts only its own.
    """

    alone = only_autograd(toggles)

    own = toggles if alone else _own(toggles)

    def record(decision: Decision, scope: str) -> None:
        event = DecisionTaken(decision.subject, decision.ordinal, decision.allowed)
        log.emit(event, unit=decision.unit, site=decision.site, direction=scope)

    gate = Gate(own, record=record if alone else _unrecorded, scope="joint")
    with contextlib.ExitStack() as stack:
        if autograd_asked(toggles):
            for seam in SEAMS:
                stack.enter_context(seam(gate, log))
        if fake_kernels.named(toggles):
            checked = replace(gate, record=record)  # with the same decisions
            stack.enter_context(fake_kernels.fake_kernels(checked, log))
        if backward.backward_off(toggles):
            stack.enter_context(backward.recorded(log))
        yield gate


def _unrecorded(decision: Decision, scope: str) -> None:
    """Log nothing of a decision."""


def _own(toggles: Toggles) -> Toggles:
    """Return the part of the toggles that names units of AOTAutograd."""
    return Toggles(
        frozenset(name for name in toggles.off if belongs(name, AUTOGRAD_FAMILY)),
        toggles.sites,
        {name: count for name, count in toggles.first.items() if belongs(name, AUTOGRAD_FAMILY)},
        frozenset(name for name in toggles.only if belongs(name, AUTOGRAD_FAMILY)),
    )
