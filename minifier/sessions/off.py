"""Switches units and layers off in a process that compiles on its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.entries import artifacts_savable
from tcdebug.minifier.capture.layers_off import layers_off
from tcdebug.minifier.cases.layer_names import is_layer


@contextlib.contextmanager
def switched(toggles: Toggles, log: EventLog | None = None) -> Iterator[list[Decision]]:
    """Switch units and layers off in this block. Yield the decisions, as they are taken.

    The decisions are also logged. If only layers are off, nothing else changes: the compile caches
    stay on.
    """
    texts = toggles.texts()
    log = log or EventLog(None)
    with layers_off(toggles, log):
        if texts and all(is_layer(text) for text in texts):
            yield []
            return
        from tcdebug.minifier.targets import autograd, inductor  # noqa: PLC0415 - start-up time

        with (
            autograd.switched(toggles, log),
            artifacts_savable(log),
            inductor.switched(toggles, log) as gate,
        ):
            yield gate.decisions
