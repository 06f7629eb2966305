"""Switches units and layers off in a process that compiles on its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.units import is_of_program
from tcdebug.minifier.capture.aot_functions import aot_functions_replaced
from tcdebug.minifier.capture.entries import artifacts_savable
from tcdebug.minifier.capture.layers_off import each_call, layers_off
from tcdebug.minifier.cases.layer_names import is_layer
from tcdebug.minifier.targets.program_passes import logging_gate


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
        units = _Units(toggles, log)
        with (
            artifacts_savable(log),
            aot_functions_replaced(log, all_backends=True),
            contextlib.closing(units),
            each_call(units.before_call, log),
        ):
            yield units.decisions


@contextlib.contextmanager
def program_switched(toggles: Toggles, log: EventLog) -> Iterator[None]:
    """Switch layers and gated passes of the program off in this block. Caches stay on.

    A unit below a gated pass may be a pattern that inductor applies for it, such as
    `user.fuse_norm.PATTERN`. Inductor's passes then ask about toggles too.
    """
    with contextlib.ExitStack() as patches:
        patches.enter_context(layers_off(toggles, log))
        if any(is_of_program(text) and text.count(".") > 1 for text in toggles.texts()):
            from tcdebug.minifier.targets.inductor import passes  # noqa: PLC0415 - start-up time

            patches.enter_context(passes.passes(logging_gate(toggles, log), log))
        yield


@dataclass
class _Units:
    """Applies toggles to compiles, and again before the first call of a compiled function.

    By then, a program has patched what it patches in torch. A unit that is off is off for such a
    patch too, as it is for the candidates of a search.
    """

    toggles: Toggles
    log: EventLog
    decisions: list[Decision] = field(default_factory=list)
    patches: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    called: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._apply()

    def _apply(self) -> None:
        from tcdebug.minifier.targets import autograd, inductor  # noqa: PLC0415 - start-up time

        self.patches.enter_context(autograd.switched(self.toggles, self.log))
        gate = self.patches.enter_context(inductor.switched(self.toggles, self.log))
        self.decisions[:] = gate.decisions
        gate.decisions = self.decisions

    def before_call(self) -> Callable[[], None]:
        """Apply the toggles again if this is the first call."""
        with self.lock:
            if not self.called:
                self.called = True
                self.close()
                self._apply()
                _pick_instructions()
        return _nothing

    def close(self) -> None:
        """Apply the toggles no longer."""
        self.patches.close()


def _pick_instructions() -> None:
    """Spare inductor a second, if it has not compiled anything yet."""
    from tcdebug.minifier.targets.inductor import vector_instructions  # noqa: PLC0415 - start-up time

    vector_instructions.pick_if_known()


def _nothing() -> None:
    """Do nothing after a call."""
